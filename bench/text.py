"""Ingest of CSV and JSON lines against pyarrow's own readers of them on one thread, which only parse.

    python bench/text.py                     # 3.3 M flights; about two minutes on 2 cores, and 1 GB of disk
    python bench/text.py --rows 500000

Headway's rate is the whole ingest's: it parses, coerces, quarantines, labels, splits, keeps statistics and writes records.
Every run is a process of its own; rows/s leave imports out.

Wanted: at least half of pyarrow's rate, for both.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
from common import child, flights, header, peak_rss_mb
from ingest import headway

RATIO = 0.5
PIECE = 336_776


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=3_300_000)
    parser.add_argument("--formats", nargs="+", default=["csv", "jsonl"], choices=["csv", "jsonl"])
    parser.add_argument("--rounds", type=int, default=2, help="the best of so many counts")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--child", choices=["headway", "pyarrow"], help=argparse.SUPPRESS)
    parser.add_argument("--input", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        with tempfile.TemporaryDirectory(prefix="headway-bench-") as out:
            run = headway if arguments.child == "headway" else parse
            print(json.dumps(run(arguments, Path(out)) | {"peak": peak_rss_mb()}))
        return
    header("text")
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
        for suffix in arguments.formats:
            path = Path(scratch) / f"flights.{suffix}"
            write(path, arguments.rows)
            compare(arguments, path, suffix)
            path.unlink()


def compare(arguments: argparse.Namespace, path: Path, suffix: str) -> None:
    rates: dict[str, list[float]] = {"headway": [], "pyarrow": []}
    for _ in range(arguments.rounds):
        for kind, found in rates.items():
            asked = ("--child", kind, "--input", str(path), "--workers", str(arguments.workers))
            figures = json.loads(child(__file__, *asked).splitlines()[-1])
            found.append(arguments.rows / figures["seconds"])
            print(f"{suffix:6s} {kind:8s} {found[-1]:>11,.0f} rows/s {figures['peak']:6.0f} MB peak", flush=True)
    ratio = max(rates["headway"]) / max(rates["pyarrow"])
    good = "yes" if ratio >= RATIO else "NO"
    print(f"{suffix}: {ratio:.3g} of pyarrow's rate on one thread (required: at least {RATIO:g}): {good}")


def write(path: Path, rows: int) -> None:
    """The tiled flights as text, piece by piece."""
    from beam_jobs.predict.part_writer import json_lines

    piece = flights(PIECE)
    with path.open("wb") as file:
        for start in range(0, rows, PIECE):
            part = piece.slice(0, min(PIECE, rows - start))
            part = part.set_column(0, "row_id", pa.array(range(start, start + part.num_rows)))
            if path.suffix == ".csv":
                pacsv.write_csv(part, file, pacsv.WriteOptions(include_header=start == 0))
            else:
                for batch in part.to_batches():
                    file.write(json_lines(batch))


def parse(arguments: argparse.Namespace, out: Path) -> dict[str, Any]:
    """Read every batch, keep none."""
    import pyarrow.json as pajson

    started = time.perf_counter()
    if arguments.input.suffix == ".csv":
        with pacsv.open_csv(arguments.input, pacsv.ReadOptions(use_threads=False, block_size=1 << 22)) as reader:
            rows = sum(batch.num_rows for batch in reader)
    else:
        options = pajson.ReadOptions(use_threads=False, block_size=1 << 22)
        rows = pajson.read_json(arguments.input, options).num_rows
    return {"seconds": time.perf_counter() - started, "rows": rows}


if __name__ == "__main__":
    main()
