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
    runs.reverse()
    titles = [f"{run['spans'][-1]} ({len(run['spans'])} months)" for run in runs]
    print(f"\n{'stage':<14}" + "".join(f"{title:>24}" for title in titles))
    for name in dict.fromkeys(stage["stage"] for run in runs for stage in run["stages"]):
        cells = []
        for run in runs:
            mine = [stage for stage in run["stages"] if stage["stage"] == name]
            ran = [stage for stage in mine if not stage["cached"]]
            cells.append(f"{sum(stage['seconds'] for stage in ran):.1f} s, {len(ran)} of {len(mine)} ran")
        print(f"{name:<14}" + "".join(f"{cell:>24}" for cell in cells))
    print(f"{'whole run':<14}" + "".join(f"{run['seconds']:>22.1f} s" for run in runs))


def main() -> None:
    began = time.monotonic()
    prepare.main()
    shutil.rmtree(FOLDER / "store", ignore_errors=True)
    pipeline = str(FOLDER)
    headway("run", pipeline, "--window", "9", "--until", "2013-09")
    headway("run", pipeline, "--window", "10", "--until", "2013-10")
    headway("models", pipeline)
    report()
    newest = max((FOLDER / "store" / "runs").glob("*.html"))
    print(f"\nstore: {FOLDER / 'store'}\ndemo: {time.monotonic() - began:.1f} s\nreport: {newest}")


if __name__ == "__main__":
    main()
