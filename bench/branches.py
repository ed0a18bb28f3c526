"""The share of branches that tests enter, of the modules and by the tests of `bench/mutants.py`.

    nice python bench/branches.py                       # a quarter of an hour; needs coverage, of the group `bench`
    nice python bench/branches.py --before bench/branches-before.json       # beside the figures of an earlier run

A branch is a jump from one line to another. Processes that the tests start are measured too, but not those that they kill.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from common import header
from mutants import AREAS, ROOT, Copy, files

SETTINGS = """[run]
branch = true
patch = subprocess, _exit, fork
relative_files = true
data_file = {folder}/measured
source = {folders}
"""
Entered = dict[str, tuple[int, int]]
"""Of each module, how many of its branches were entered, and how many it has."""


def entered(root: Path, area: str) -> Entered:
    with tempfile.TemporaryDirectory(prefix="branches-") as folder:
        copy = Copy(root, Path(folder))
        modules = [str(path.relative_to(copy.root)) for path in files(copy.root, AREAS[area][0])]
        settings, report = Path(folder) / "settings", Path(folder) / "report.json"
        folders = ", ".join(sorted({str(Path(module).parent) for module in modules}))
        settings.write_text(SETTINGS.format(folder=folder, folders=folders), encoding="utf-8")
        command = ["-m", "coverage", "run", f"--rcfile={settings}"]
        if failed := copy.fails(area, runner=command):
            raise SystemExit(f"{area}: {failed} fails")
        for step in (["combine", "--quiet"], ["json", "--quiet", "-o", str(report)]):
            command = [sys.executable, "-m", "coverage", *step, f"--rcfile={settings}"]
            subprocess.run(command, cwd=copy.root, check=True)
        found = json.loads(report.read_text(encoding="utf-8"))["files"]
    figures = {module: found[module]["summary"] for module in modules}
    return {name: (of["covered_branches"], of["num_branches"]) for name, of in figures.items() if of["num_branches"]}


def share(entered: Sequence[tuple[int, int]]) -> str:
    hit, of = (sum(pair[i] for pair in entered) for i in (0, 1))
    return f"{hit} | {of} | {hit / of:.1%}" if of else "0 | 0 | -"


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--area", choices=AREAS, action="append", help="only this one; may be given again")
    options.add_argument("--save", type=Path, help="write the figures into this JSON file")
    options.add_argument("--before", type=Path, help="the saved file of an earlier run, to compare with")
    given = options.parse_args(arguments)
    header("branches")
    print("| module | entered | branches | share |\n| --- | --- | --- | --- |")
    now: Entered = {}
    for area in given.area or AREAS:
        of_area = entered(root, area)
        for module, pair in of_area.items():
            print(f"| {module} | {share([pair])} |")
        print(f"| **{area}** | {share([*of_area.values()])} |", flush=True)
        now |= of_area
    print(f"| **all** | {share([*now.values()])} |")
    if given.before:
        before = json.loads(given.before.read_text(encoding="utf-8"))
        both = [module for module in now if module in before]
        print(f"\nOf {len(both)} modules that {given.before} has too: then {share([before[m] for m in both])}, now")
        print(share([now[module] for module in both]))
        for module in both:
            (hit, of), (hit_before, of_before) = now[module], before[module]
            if hit * of_before < hit_before * of:
                print(f"less: {module} {share([before[module]])} -> {share([now[module]])}")
    if given.save:
        lines = ",\n".join(f" {json.dumps(module)}: [{hit}, {of}]" for module, (hit, of) in now.items())
        given.save.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
