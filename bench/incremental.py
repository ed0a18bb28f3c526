"""A window of twelve spans of which one is new, against that span alone: what a retrain ingests as data lands.

    python bench/incremental.py                   # 12 spans of 275,000 flights; about half a minute on 2 cores
    python bench/incremental.py --rows 1000000

Both are `headway run --to ingest` in a process that has ingested before: the spans are listed, what is in the store is looked
up and checked, and the new one is ingested. Each round has stores of its own; the span alone goes into an empty one.

Wanted: at most 1.3 times the span alone.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import child, flights, header

SPANS, RATIO = 12, 1.3
PIPELINE = """
name: spans
source: {{format: parquet, path: "{data}/{{span}}.parquet"}}
label: arr_delay > 15
columns: {{"*": auto, row_id: key, arr_delay: ignore}}
split: {{mode: hash, key: row_id}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=275_000, help="rows of a span")
    parser.add_argument("--rounds", type=int, default=6, help="the best of so many counts")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(timed(arguments.child)))
        return
    header("incremental")
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
        spans = [f"2013-{month:02d}" for month in range(1, SPANS + 1)]
        for number, span in enumerate(spans):
            table = flights(arguments.rows)
            ids = pa.array(np.arange(arguments.rows) + number * arguments.rows)
            pq.write_table(
                table.set_column(0, "row_id", ids), Path(scratch) / f"{span}.parquet", row_group_size=131_072
            )
        alone, window = [], []
        for number in range(arguments.rounds):
            alone.append(once(Path(scratch), f"alone{number}", spans[-1:]))
            window.append(once(Path(scratch), f"window{number}", spans))
        print(f"the span alone            {min(alone):6.2f} s")
        print(f"one new span of {SPANS}        {min(window):6.2f} s")
        ratio = min(window) / min(alone)
        print(f"ratio {ratio:.3g} (required: at most {RATIO:g}): {'yes' if ratio <= RATIO else 'NO'}")


def once(scratch: Path, name: str, spans: list[str]) -> float:
    """Seconds to ingest the last span, the others being there."""
    folder, before = scratch / name, scratch / f"{name}-before"
    _project(folder, spans, scratch)
    _project(before, ["2013-01"], scratch)
    seconds = float(json.loads(child(__file__, "--child", str(folder)).splitlines()[-1]))
    shutil.rmtree(folder)
    shutil.rmtree(before)
    return seconds


def _project(folder: Path, spans: list[str], scratch: Path) -> None:
    (folder / "data").mkdir(parents=True)
    (folder / "pipeline.yaml").write_text(PIPELINE.format(data="data"))
    for span in spans:
        (folder / "data" / f"{span}.parquet").symlink_to(scratch / f"{span}.parquet")


# --- in a process of its own


def timed(folder: Path) -> float:
    import pandas  # noqa: F401 - pyarrow looks for it once, before the clock runs

    from flows.cli.app import main as headway

    def ingest(project: Path, *options: str) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            if headway(["run", "--to", "ingest", "--json", str(project), *options]):
                raise SystemExit("ingest failed")

    before = folder.with_name(f"{folder.name}-before")
    ingest(before)
    spans = sorted(path.stem for path in (folder / "data").iterdir())
    if len(spans) > 1:
        ingest(folder, "--until", spans[-2])
    began = time.perf_counter()
    ingest(folder)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
