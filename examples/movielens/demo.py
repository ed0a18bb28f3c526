"""The demo: MovieLens-100k (your copy) or generated ratings, from months of ratings to a ranker that has to beat two baselines.

    python examples/movielens/demo.py ~/ml-100k        # https://grouplens.org/datasets/movielens/100k/, unzipped
    python examples/movielens/demo.py                  # generated ratings of the same form
    python examples/movielens/demo.py ~/ml-100k --seeds 3

Begins with an empty store. The last month is eval, all before it are train; each seed is a run of its own, and the table at the
end has NDCG@10 of every one beside the orders by popularity and by an item's mean.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import prepare

FOLDER = Path(__file__).resolve().parent
HEADWAY = [sys.executable, "-P", "-m", "flows.cli"]
SHOWN = ("ndcg", "mrr", "recall_at_k", "item_coverage", "auc")


def run(seed: int, months: list[str]) -> dict[str, Any]:
    """Run the pipeline as a person would type it; return what it says as JSON."""
    arguments = ["run", str(FOLDER), "--window", str(len(months)), "--until", months[-1], "--seed", str(seed)]
    print(f"\n$ headway {' '.join(arguments)}", flush=True)
    done = subprocess.run([*HEADWAY, *arguments, "--json"], check=False, stdout=subprocess.PIPE, text=True)
    if not done.stdout.strip():
        raise SystemExit(f"headway ended with exit code {done.returncode}")
    return json.loads(done.stdout)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", nargs="?", type=Path, help="the unzipped ml-100k; without it ratings are generated")
    options.add_argument("--seeds", type=int, default=1)
    arguments = options.parse_args()
    prepare.main(arguments.folder and arguments.folder.expanduser())
    for made in (FOLDER / "store", FOLDER / "schema.pbtxt"):
        shutil.rmtree(made) if made.is_dir() else made.unlink(missing_ok=True)
    months = sorted(path.stem for path in (FOLDER / "data").glob("*.parquet"))
    runs = [run(seed, months) for seed in range(arguments.seeds)]
    print(f"\n{'':<14}" + "".join(f"{name:>15}" for name in SHOWN))
    rows = {f"seed {seed}": one["metrics"] for seed, one in enumerate(runs)} | runs[0]["baselines"]
    for name, metrics in rows.items():
        print(f"{name:<14}" + "".join(f"{metrics[metric]:>15.4f}" for metric in SHOWN))
    for seed, one in enumerate(runs):
        print(f"seed {seed}: {one['state']}")


if __name__ == "__main__":
    main()
