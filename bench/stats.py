"""Statistics: merging a year of spans, a table of thousands of columns, a column of millions of strings.

    python bench/stats.py                    # the wide table at full height: some minutes on 2 cores, and 6 GB of disk
    python bench/stats.py --wide-rows 20000  # a fifth of it

Merged are 365 spans of the flights table (11 columns). The wide table (5,000 columns of floats, integers and text) goes
through the whole ingest stage, records included; the strings are 5 million different ones in four spans, counted, saved,
merged and ranked. Each is a process of its own. Memory of the wide table is the whole process's peak, with two workers; of
the strings what the peak rose by while it worked.

(The file is not called statistics.py: run from here, it would hide the standard library's module of that name.)

Wanted: under 2 s for the merge, 1,000 MB for the wide table, 400 MB for the strings.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import FLOATS, INTS, STRINGS, child, flights, header, peak_rss_mb, required

SPANS, MERGE_SECONDS, WIDE_MB, TEXT_MB = 365, 2.0, 1000.0, 400.0
COLUMNS, STRING_SPANS, STRING_ROWS = 5_000, 4, 1_250_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--wide-rows", type=int, default=100_000, help="rows of the wide table")
    parser.add_argument("--scale", type=float, default=1.0, help="of spans, different strings and wide columns")
    parser.add_argument("--child", choices=["merge", "wide", "text"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        run = {"merge": merge_year, "wide": wide, "text": strings}[arguments.child]
        print(json.dumps(run(arguments)))
        return
    header("stats")
    for kind in ("merge", "text", "wide"):
        folder = Path(tempfile.mkdtemp(prefix="headway-bench-"))
        try:
            if kind == "wide":
                write_wide(folder / "wide.parquet", arguments.wide_rows, round(COLUMNS * arguments.scale))
            out = child(__file__, "--child", kind, "--folder", str(folder), "--scale", str(arguments.scale))
        finally:
            shutil.rmtree(folder)
        report(kind, json.loads(out.splitlines()[-1]))


def report(kind: str, found: dict[str, Any]) -> None:
    """One line a figure, and whether it is what is wanted."""
    if kind == "merge":
        required(
            f"s to merge {found['spans']} spans of {found['rows']:,} rows in all", found["seconds"], most=MERGE_SECONDS
        )
        return
    cells = found["rows"] * found["columns"] / found["seconds"]
    what = "strings, counted to ranked" if kind == "text" else f"{found['columns']:,} columns, whole ingest"
    print(f"{what}: {found['rows']:,} rows in {found['seconds']:.1f} s, {cells:,.0f} cells/s", flush=True)
    if kind == "text":
        required(f"MB above the process's {found['before']:.0f}", found["mb"], most=TEXT_MB)
    else:
        print(f"{found['cpu']:.0f} s of processor time", flush=True)
        required("MB at the peak of the whole process", found["mb"], most=WIDE_MB)


def write_wide(path: Path, rows: int, columns: int, group: int = 5_000) -> None:
    """Two fifths floats, two fifths integers of few and of many values, one fifth text."""
    rng = np.random.default_rng(1)
    words = pa.array([f"word{i}" for i in range(50)])
    writer: pq.ParquetWriter | None = None
    for start in range(0, rows, group):
        n = min(group, rows - start)
        makers = [
            lambda n=n: pa.array(rng.standard_normal(n).astype(np.float32)),
            lambda n=n: pa.array(rng.exponential(size=n).astype(np.float32)),
            lambda n=n: pa.array(rng.integers(0, 1000, n)),
            lambda n=n: pa.array(rng.integers(0, 1 << 40, n)),
            lambda n=n: pa.DictionaryArray.from_arrays(rng.integers(0, 50, n).astype(np.int32), words),
        ]
        table = pa.table([makers[i % 5]() for i in range(columns)], names=[f"c{i:04d}" for i in range(columns)])
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


# --- in a process of its own


def merge_year(arguments: argparse.Namespace) -> dict[str, Any]:
    """The statistics stage over 365 spans of the flights, one split each."""
    from headway.monitor import Monitor
    from headway.schema.columns import Column
    from headway.statistics.split_statistics import SplitStatistics
    from headway.statistics.stage import StatisticsRequest, merge

    kinds = {"int64": INTS, "float32": FLOATS, "bytes": STRINGS}
    columns = [
        Column(name=name, type=kind, nullable=True, encoding="dictionary" if kind == "bytes" else "plain")
        for kind, names in kinds.items()
        for name in names
    ]
    table = flights(336_776)
    arrays = {c.name: table[c.name].cast(pa.string() if c.type == "bytes" else c.arrow) for c in columns}
    stored = pa.table({n: a.cast(pa.binary()) if n in STRINGS else a for n, a in arrays.items()}).combine_chunks()
    spans = round(SPANS * arguments.scale)
    rows = stored.num_rows // SPANS
    folders = []
    for span in range(spans):
        statistics = SplitStatistics.create(columns)
        for batch in stored.slice(span * rows, rows).to_batches():
            statistics.update(batch)
        statistics.save(arguments.folder / str(span))
        folders.append(arguments.folder / str(span))
    out = arguments.folder / "out"
    out.mkdir()
    started = time.perf_counter()
    result = merge(StatisticsRequest(columns=tuple(columns), splits={"train": tuple(folders)}), out, Monitor())
    return {"seconds": time.perf_counter() - started, "rows": result["rows"]["train"], "spans": spans}


def wide(arguments: argparse.Namespace) -> dict[str, Any]:
    """One call of the ingest stage."""
    import apache_beam  # noqa: F401 - its import takes a second at any number of rows
    import pandas  # noqa: F401 - pyarrow looks for it once, before the clock runs

    from beam_jobs.ingest.request import IngestRequest
    from beam_jobs.ingest.stage import ingest
    from beam_jobs.runners.config import RunnerConfig
    from headway.monitor import Monitor
    from headway.schema.columns import Column
    from headway.sources.config import SourceConfig
    from headway.sources.spans import files
    from headway.tabular.label import LabelConfig
    from headway.tabular.splits import SplitConfig

    kinds = ("float32", "float32", "int64", "int64", "bytes")
    columns = tuple(
        Column(name=f"c{i:04d}", type=kind, nullable=True, encoding="dictionary" if kind == "bytes" else "plain")
        for i, kind in ((i, kinds[i % 5]) for i in range(round(COLUMNS * arguments.scale)))
    )
    started, used = time.perf_counter(), time.process_time()
    source = SourceConfig(format="parquet", path=str(arguments.folder / "wide.parquet"))
    request = IngestRequest(
        span="all",
        files=files(source, "all"),
        source=source,
        read=columns,
        stored=tuple(column.name for column in columns),
        label=LabelConfig(expression="c0000 > 0"),
        split=SplitConfig(key=("c0003",)),
    )
    out = arguments.folder / "out"
    out.mkdir()
    result = ingest(request, out, Monitor(), runner=RunnerConfig(workers=2))
    seconds, cpu = time.perf_counter() - started, time.process_time() - used
    rows = result["counts"]["written"]
    return {"seconds": seconds, "cpu": cpu, "rows": rows, "columns": len(columns), "mb": peak_rss_mb()}


def strings(arguments: argparse.Namespace) -> dict[str, Any]:
    """5 million different strings: four spans counted and saved, merged, the 100,000 most frequent taken."""
    from headway.schema.columns import Column
    from headway.statistics.split_statistics import SplitStatistics, merge_all

    columns = (Column(name="s", type="bytes", nullable=False),)
    rows = round(STRING_ROWS * arguments.scale)
    before, seconds = peak_rss_mb(), 0.0
    for span in range(STRING_SPANS):
        statistics = SplitStatistics.create(columns, spill=arguments.folder / "spill")
        for start in range(span * rows, (span + 1) * rows, 25_000):
            ids = (np.arange(start, min(start + 25_000, (span + 1) * rows)) * 2654435761) % 2**32
            batch = pa.record_batch([pa.array(np.char.add("user-", ids.astype(str))).cast(pa.binary())], names=["s"])
            started = time.perf_counter()
            statistics.update(batch)
            seconds += time.perf_counter() - started
        started = time.perf_counter()
        statistics.save(arguments.folder / str(span))
        seconds += time.perf_counter() - started
    started = time.perf_counter()
    folders = [arguments.folder / str(span) for span in range(STRING_SPANS)]
    merged = merge_all(folders, columns, spill=arguments.folder / "spill")
    merged.save(arguments.folder / "all")
    text = merged.columns["s"].text
    assert text is not None and len(text) == STRING_SPANS * rows
    assert len(text.top(100_000)[0]) == min(100_000, STRING_SPANS * rows)
    seconds += time.perf_counter() - started
    return {"seconds": seconds, "rows": merged.rows, "columns": 1, "before": before, "mb": peak_rss_mb() - before}


if __name__ == "__main__":
    main()
