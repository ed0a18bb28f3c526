"""Builds the documentation as a site into build/site, from the Markdown that GitHub shows. It needs no network.

    python infra/site/build.py                 # make docs: warnings are errors
    python infra/site/build.py --output FOLDER

docs/ and the pages outside of it are copied to a folder of their own, where the reference pages are filled from the code and
docs/index.md gives the navigation; Sphinx reads that copy. Nothing in docs/ is changed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import commands
import configuration
import navigation
import python_api

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGES = (
    "docs/**/*.md",
    "docs/*.ipynb",
    "README.md",
    "CHANGELOG.md",
    "bench/README.md",
    "infra/README.md",
    "examples/*/README.md",
)
FILES = ("docs/images/*", "examples/*/*.py", "examples/*/*.yaml", "bench/comparison_jobs/*.*", "LICENSE")
"""What pages link to and show."""
GENERATED = {"configuration": configuration.page, "commands": commands.page, "python": python_api.page}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "site")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        stage(Path(scratch) / "source")
        raise SystemExit(build(Path(scratch), arguments.output))


def stage(source: Path) -> None:
    """Copy the pages, fill those that are made from code, and add the navigation."""
    for pattern in (*PAGES, *FILES):
        for file in sorted(ROOT.glob(pattern)):
            target = source / file.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
    for page in source.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        for name, make in GENERATED.items():
            above, mark, _ = text.partition(f"<!-- made from the code: {name} -->")
            text = above + make() if mark else text  # below the mark is what GitHub shows instead
        page.write_text(navigation.links(text, page, source), encoding="utf-8")
    (source / "index.md").write_text(navigation.home(source), encoding="utf-8")
    shutil.copyfile(HERE / "conf.py", source / "conf.py")


def build(scratch: Path, output: Path) -> int:
    """Sphinx's exit code; the site stands in `output` if it is 0."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run([*command, "-d", scratch / "doctrees", scratch / "source", scratch / "html"], check=False)
    if not done.returncode:
        shutil.rmtree(output, ignore_errors=True)
        output.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(scratch / "html", output)
        pages = sum(1 for _ in output.rglob("*.html"))
        print(f"{pages} pages in {output}: open {output / 'index.html'}")
    return done.returncode


if __name__ == "__main__":
    main()
