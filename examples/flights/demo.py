"""The demo: real flights, nine months to a promoted model, then a retrain with one month more.

    python examples/flights/demo.py

Begins with an empty store, so that what it shows is what a first run costs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import prepare

FOLDER = Path(__file__).resolve().parent
HEADWAY = [sys.executable, "-P", "-m", "flows.cli"]


def headway(*arguments: str) -> None:
    """Type a command, as a person would."""
    print(f"\n$ headway {' '.join(arguments)}", flush=True)
    done = subprocess.run([*HEADWAY, *arguments], check=False)
    if done.returncode:
        raise SystemExit(f"headway ended with exit code {done.returncode}")


def report() -> None:
    """How long each stage took, over both runs."""
    answer = subprocess.run(
        [*HEADWAY, "runs", str(FOLDER), "--json"], check=True, capture_output=True, text=True
    ).stdout
    runs = json.loads(answer)
    print(f"\n{'stage':<14}" + "".join(f"{'run ' + str(i + 1):>14}" for i in range(len(runs))))
    stages = list(dict.fromkeys(stage["stage"] for run in reversed(runs) for stage in run["stages"]))
    for name in stages:
        cells = []
        for run in reversed(runs):
            mine = [stage for stage in run["stages"] if stage["stage"] == name]
            ran = [stage for stage in mine if not stage["cached"]]
            seconds = sum(stage["seconds"] for stage in ran)
            cells.append(f"{seconds:.1f} s ({len(ran)} of {len(mine)})")
        print(f"{name:<14}" + "".join(f"{cell:>14}" for cell in cells))
    print(f"{'whole run':<14}" + "".join(f"{run['seconds']:>8.1f} s     " for run in reversed(runs)))


def main() -> None:
    began = time.monotonic()
    prepare.main()
    shutil.rmtree(FOLDER / "store", ignore_errors=True)
    pipeline = str(FOLDER)
    headway("run", pipeline, "--window", "9", "--until", "2013-09")
    headway("run", pipeline, "--window", "10", "--until", "2013-10")
    headway("models", pipeline)
    report()
    print(f"\nstore: {FOLDER / 'store'}\ndemo: {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
