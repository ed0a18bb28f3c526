"""Days of flights as they land: each day scored, drift and labels that come later watched, a retrain when they ask for it.

    python examples/predict-and-monitor/story.py

Begins with an empty store. What it types are the commands of the README; it reads their answers as JSON to tell the story.
"""

from __future__ import annotations

import datetime
import json
import shutil
import subprocess
import sys
import time
from typing import Any

import land

FOLDER = land.FOLDER
DAYS = [land.LAST + datetime.timedelta(days=k) for k in range(4, 9)]
"""From the day before the blizzard of 8 February 2013 to three days after it."""
WEATHER = {
    "2013-02-08": "the blizzard reaches New York in the afternoon: half of the flights never take off",
    "2013-02-09": "the airports open again at noon",
}
DONE, ALARM = 0, 3


def headway(command: str, *arguments: str) -> dict[str, Any]:
    """Type a command, and return its answer."""
    print(f"  $ headway {' '.join([command, '.', *arguments])}", flush=True)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "flows.cli", command, str(FOLDER), *arguments, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (DONE, ALARM):
        raise SystemExit(f"{done.stderr}\nheadway {command} ended with exit code {done.returncode}")
    return dict(json.loads(done.stdout))


def trained(run: dict[str, Any]) -> str:
    """How a run ended, in a line."""
    auc = run["metrics"]["auc"]
    return f"{run['state']} version {run['version']}, trained on {run['spans'][0]} to {run['spans'][-1]}: auc {auc:.3f}"


def scored(answer: dict[str, Any]) -> None:
    for row in answer["spans"]:
        folder = row["output"].removeprefix(f"{FOLDER}/")
        print(f"    {row['rows']:,} flights of {row['span']} scored by version {row['version']}: {folder}/")


def watched(answer: dict[str, Any]) -> None:
    for row in answer["spans"]:
        if row.get("scored"):
            print(f"    labels of {row['span']} are here: auc {row['metrics']['auc']:.3f} on {row['scored']:,} flights")
    for alarm in answer["alarms"]:
        print(f"    ALARM {alarm}")
    if not answer["alarms"]:
        print("    no alarm")


def main() -> None:
    began = time.monotonic()
    for name in ("store", "scored", "incoming", "labelled"):
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    flights = land.read_departures()
    print(f"{land.FIRST} to {land.LAST}: four weeks of flights with their delays, and the first champion")
    land.history(flights)
    print(f"    {trained(headway('run', '--window', '28'))}")
    alarms = []
    for day in DAYS:
        print(f"\nthe morning after {day}" + (f": {WEATHER[str(day)]}" if str(day) in WEATHER else ""))
        land.land(flights, day)
        scored(headway("predict", "--spans"))
        last = day == DAYS[-1]
        # a person who has seen the alarms of the days before asks for a retrain where there is one more
        answer = headway("monitor", *(("--retrain", "--window", "28") if last else ()))
        watched(answer)
        alarms += answer["alarms"]
        if answer.get("run"):
            print(f"    retrained: {trained(answer['run'])}")
    decayed = sum("become worse" in alarm for alarm in alarms)
    print(
        f"\n{len(DAYS)} days scored, {len(alarms)} alarms: {decayed} of the champion, {len(alarms) - decayed} of the data"
    )
    print(f"predictions: {FOLDER / 'scored'}\nstore: {FOLDER / 'store'}\nstory: {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
