"""What Headway, TFX, ZenML and plain Keras install, and what the same job takes in lines.

    python bench/comparison.py                          # everything; downloads some gigabytes
    python bench/comparison.py --only keras,zenml --python python3.10
    python bench/comparison.py --lines                  # the lines of the programs in bench/comparison_jobs/ alone

Each is installed by pip into a new virtual environment, without byte code; packages are those of `pip list` without pip and
setuptools, MB are 10^6 bytes of files in site-packages. What pip cannot install is shown with the end of its answer.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
JOBS = Path(__file__).with_name("comparison_jobs")
INSTALLED = {
    "headway": [str(ROOT)],
    "keras": ["tensorflow"],
    "zenml": ["zenml[local]"],
    "zenml + keras": ["zenml[local]", "tensorflow"],
    "tfx": ["tfx"],
}
TOOLS = {"pip", "setuptools", "wheel"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(INSTALLED), help="names, with commas")
    parser.add_argument("--python", default=sys.executable, help="the Python of the environments")
    parser.add_argument("--lines", action="store_true", help="install nothing")
    arguments = parser.parse_args()
    for name in () if arguments.lines else arguments.only.split(","):
        print(f"{name:<14} {installed(INSTALLED[name], arguments.python)}", flush=True)
    for job in sorted(JOBS.iterdir()):
        if job.suffix in (".py", ".yaml"):
            print(f"{job.name:<18} {lines(job):>4} lines")


def installed(requirements: list[str], python: str) -> str:
    """Packages, megabytes and seconds of an installation, or why pip ends without one."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "venv", folder], check=True)
        pip = [f"{folder}/bin/python", "-m", "pip", "--disable-pip-version-check"]
        begun = time.monotonic()
        command = [*pip, "install", "--quiet", "--no-compile", "--no-cache-dir", *requirements]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            return "pip cannot install it:\n    " + "\n    ".join(said[-25:])
        listed = json.loads(
            subprocess.run([*pip, "list", "--format=json"], capture_output=True, text=True, check=True).stdout
        )
        packages = {entry["name"].lower(): entry["version"] for entry in listed if entry["name"].lower() not in TOOLS}
        (site,) = Path(folder).glob("lib/python*/site-packages")
        own = {path for tool in TOOLS for path in site.glob(f"{tool}*")}
        size = sum(
            f.stat().st_size for top in site.iterdir() if top not in own for f in [top, *top.rglob("*")] if f.is_file()
        )
        shown = {
            name: version
            for name, version in packages.items()
            if name in ("tensorflow", "keras", "zenml", "tfx", "headway")
        }
        return f"{len(packages)} packages, {size / 1e6:,.0f} MB, {time.monotonic() - begun:.0f} s: {shown}"


def lines(job: Path) -> int:
    """Lines that are neither empty nor a comment nor a docstring of the module."""
    text = job.read_text(encoding="utf-8")
    if text.startswith('"""'):
        text = text.partition('"""')[2].partition('"""')[2]
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("#"))


if __name__ == "__main__":
    main()
