"""Whether two checkouts of Headway do the same: ten pipelines run in both, by turns, and what they end in is compared.

    python bench/same.py OLD NEW [--only csv time]

Each checkout has its environment in .venv. Compared are the rows of the shards, value by value and in their order, the split
of every row, the statistics of each split, what the transform learned, the predictions of eval rows and of `headway predict`,
metrics, the verdict and the signatures of the export, all read through each checkout's own commands. The table tells what
differs, with an example of each difference below it; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import logging
import math
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from common import header
from same_pipelines import PIPELINES, Pipeline

COMMANDS = {
    "statistics": (("run", "--to", "statistics"), ("run", "--to", "stats"), ("stats",)),
    "train": (("run", "--to", "train"), ("train",)),
}
"""How a command is spelled, the newest way first: one that a checkout refuses as bad usage is not its own."""
KEYS: dict[str, str] = {}
"""How a piece of pipeline.yaml is spelled now, and how it was before, for a checkout that refuses the first."""
BAD_USAGE, NOT_PROMOTED = 2, 4
"""Exit codes."""

EXACT, CLOSE = 1e-9, 1e-5
"""The same values may be added in another order; predictions, and the metrics of them, pass through TensorFlow."""
TOLD = 20
"""Differences of one aspect that are told with an example; another split, say, changes nearly every statistic."""
KNOWN_AS = ("split", "id", "path", "source_file", "source_row", "file", "row")
"""Columns that say which row it is, where a table has them: of export-rows, of predict, of quarantine."""

PROBE = """
import json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
from tensorflow.core.framework.types_pb2 import DataType
from tensorflow.core.protobuf import saved_model_pb2
def tensors(infos):
    shape = lambda info: "?" if info.tensor_shape.unknown_rank else [size.size for size in info.tensor_shape.dim]
    return {name: f"{DataType.Name(info.dtype)} {shape(info)}" for name, info in infos.items()}
found = []
for folder in json.load(sys.stdin):
    with open(os.path.join(folder, "saved_model.pb"), "rb") as file:
        signatures = saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs[0].signature_def
    found.append({name: {"in": tensors(one.inputs), "out": tensors(one.outputs)} for name, one in signatures.items()})
print(json.dumps(found))
"""
"""Prints the signatures of each export with names, dtypes and shapes, which no command tells."""


class Difference(NamedTuple):
    what: str
    """Return a value in few words."""
    example: str = ""


class CommandError(Exception):
    """A command of a checkout failed."""


def different_rows(old: pa.Table, new: pa.Table, tolerance: float = 0.0) -> list[Difference]:
    """Columns that one side lacks or has in another type, rows that one side lacks or has elsewhere, other values."""
    kinds, others = (dict(zip(side.column_names, side.schema.types, strict=True)) for side in (old, new))
    found = [
        Difference(f"{name}: {kinds.get(name, 'no column')} became {others.get(name, 'no column')}")
        for name in kinds | others
        if kinds.get(name) != others.get(name)
    ]
    before, after = _places(old), _places(new)
    both = [key for key in before if key in after]
    for few, text in ((before.keys() - after.keys(), "gone"), (after.keys() - before.keys(), "new")):
        if few:
            found.append(Difference(f"{len(few):,} of {len(before):,} rows {text}", f"row {min(few, key=str)}"))
    moved = [key for key, other in zip(both, (key for key in after if key in before), strict=True) if key != other]
    if moved:
        found.append(Difference(f"{len(moved):,} of {len(both):,} rows in another order", f"row {moved[0]}"))
    for name in (name for name in kinds if name in others):
        one, other = old[name].to_pylist(), new[name].to_pylist()
        unequal = [key for key in both if not equal(one[before[key]], other[after[key]], tolerance)]
        if unequal:
            pairs = [(one[before[key]], other[after[key]]) for key in unequal]
            most = max((abs(a - b) for a, b in pairs if _is_number(a) and _is_number(b)), default=None)
            by = "" if most is None else f" by up to {most:.3g}"
            example = f"row {unequal[0]}: {pairs[0][0]!r:.200}, {pairs[0][1]!r:.200}"
            found.append(Difference(f"{name}: {len(unequal):,} of {len(both):,} rows{by}", example))
    return found


def different_predictions(old: list[pa.Table], new: list[pa.Table]) -> list[Difference]:
    """Return the differences of predictions: of eval rows, and of those that `headway predict` read."""
    return [found for pair in zip(old, new, strict=True) for found in different_rows(*pair, CLOSE)]


def different_splits(old: pa.Table, new: pa.Table) -> list[Difference]:
    """Rows that are in another split."""
    before, after = (dict(zip(_places(side, "split"), side["split"].to_pylist(), strict=True)) for side in (old, new))
    moves = collections.defaultdict(list)
    for key in before | after:
        if before.get(key) != after.get(key):
            moves[before.get(key, "none"), after.get(key, "none")].append(key)
    return [
        Difference(f"{len(keys):,} of {len(before):,} rows from {split} to {other}", f"row {keys[0]}")
        for (split, other), keys in sorted(moves.items())
    ]


def different_values(old: Any, new: Any, tolerance: float = EXACT) -> list[Difference]:
    """Leaves of two JSON values that differ; one that is null, false or empty is as one that is not there."""
    before, after = dict(leaves(old)), dict(leaves(new))
    found = []
    for path in before | after:
        one, other = before.get(path), after.get(path)
        if not equal(one, other, tolerance):
            by = f" by {abs(one - other):.3g}" if _is_number(one) and _is_number(other) else ""
            found.append(Difference(f"{path}{by}", f"{one!r:.200}, {other!r:.200}"))
    return found


ASPECTS: dict[str, Callable[[Any, Any], list[Difference]]] = {
    "rows": different_rows,
    "rejected": different_rows,
    "splits": different_splits,
    "statistics": different_values,
    "transform": different_values,
    "predictions": different_predictions,
    "metrics": lambda old, new: different_values(old, new, CLOSE),
    "verdict": different_values,
    "signatures": different_values,
}
"""What is compared, and how."""
STATUSES = {
    "keep champion": "kept",
    "reject": "rejected",
    "rolled back": "rejected",
    "held": "needs a person",
    "shadow": "needs a person",
    "not comparable": "needs a person",
    "incompatible champion": "needs a person",
}
"""The status that a verdict's word means, of checkouts before it was one."""
Result = dict[str, Any]
"""What a run ended in: a value for each aspect, and the folder of its export; or only an error."""


def status_of(verdict: dict[str, Any]) -> str:
    """The status of a verdict, in one word for both checkouts."""
    if "status" not in verdict and verdict["promote"]:
        return "promoted"
    word: str = verdict.get("status") or verdict["verdict"]
    return STATUSES.get(word, word)


def compare(old: Result, new: Result) -> dict[str, list[Difference]]:
    """The differences between two runs by aspect; runs that fail differ in their rows."""
    if errors := [f"{side}: {result['error']}" for side, result in (("OLD", old), ("NEW", new)) if "error" in result]:
        return {"rows": [Difference(error.partition("\n")[0], error) for error in errors]}
    return {name: different(old[name], new[name]) for name, different in ASPECTS.items() if old[name] is not None}


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each leaf of a JSON value and its path. An item of a list is called by its column or name, if it has one."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for number, item in enumerate(value):
            name = item.get("column", item.get("name", number))
            yield from leaves(item, f"{path}[{name.get('name', number) if isinstance(name, dict) else name}]")
    elif value is not False and value not in (None, [], ""):
        yield path, value


def equal(old: Any, new: Any, tolerance: float) -> bool:
    """Whether two values are the same; numbers may differ by the tolerance, from 1 on times the larger one."""
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(equal(one, other, tolerance) for one, other in zip(old, new, strict=True))
    if _is_number(old) and _is_number(new) and math.isfinite(old) and math.isfinite(new):
        return abs(old - new) <= tolerance * max(1.0, abs(old), abs(new))
    return repr(old) == repr(new)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _places(table: pa.Table, *without: str) -> dict[Any, int]:
    """The place of each row by what it is known as; of rows that are known alike, a number says which one it is."""
    names = [name for name in KNOWN_AS if name in table.column_names and name not in without]
    seen: collections.Counter[Any] = collections.Counter()
    places = {}
    for place, row in enumerate(table.select(names).to_pylist()):
        key = tuple(row.values())
        places[(*key, seen[key]) if seen[key] else key] = place
        seen[key] += 1
    return places


class Checkout:
    """A checkout with its environment, and the folder in which its pipelines run."""

    def __init__(self, folder: Path, work: Path, environment: dict[str, str]) -> None:
        self.programs, self.work = folder.absolute() / ".venv" / "bin", work
        work.mkdir()
        mine = {name: value for name, value in os.environ.items() if not name.startswith(("HEADWAY_", "PYTHON"))}
        self.environment = mine | {"XDG_CACHE_HOME": str(work / "cache")} | environment
        self.spelling: dict[str, tuple[str, ...]] = {}
        git = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=8"]
        print(f"{work.name.upper()}: {folder} at {subprocess.run(git, capture_output=True, text=True).stdout.strip()}")

    def headway(self, command: str, folder: Path, *options: str, fine: tuple[int, ...] = (0,)) -> dict[str, Any]:
        """The answer of a command."""
        for words in [self.spelling[command]] if command in self.spelling else COMMANDS.get(command, ((command,),)):
            line = [self.programs / "headway", words[0], ".", *words[1:], *options, "--json"]
            done = subprocess.run(line, cwd=folder, env=self.environment, capture_output=True, text=True)
            if done.returncode in fine:
                self.spelling[command] = words
                return json.loads(done.stdout)
            if done.returncode != BAD_USAGE:
                break
        said = f"{done.stderr}{done.stdout}"[-2000:]
        raise CommandError(f"headway {' '.join(words)} ended with {done.returncode}\n{said}")

    def run(self, folder: Path, window: tuple[str, ...]) -> dict[str, Any]:
        """The record of a run; where pipeline.yaml is refused, with its keys as they were spelled before."""
        file = folder / "pipeline.yaml"
        text = file.read_text()
        try:
            return self.headway("run", folder, *window, fine=(0, NOT_PROMOTED))
        except CommandError:
            if not any(new in text for new in KEYS):
                raise
        for new, old in KEYS.items():
            text = text.replace(new, old)
        file.write_text(text)
        return self.headway("run", folder, *window, fine=(0, NOT_PROMOTED))

    def result(self, pipeline: Pipeline, number: int) -> Result:
        """Runs a pipeline for one of its windows, and reads what it ended in."""
        folder, window = self.work / pipeline.name, pipeline.windows[number]
        file, scored = folder / f"rows-{number}.parquet", folder / f"scored-{number}"
        record = self.run(folder, window)
        self.headway("export-rows", folder, *window, "--output", str(file))
        rows = pq.read_table(file).drop_columns(["row"])
        of_eval = rows.filter(pc.equal(rows["split"], "eval"))
        scoring = self.headway(
            "predict", folder, "--input", pipeline.path.replace("{span}", "*"), "--output", str(scored)
        )
        rejected = self.headway("quarantine", folder, *window)["quarantine"] if pipeline.rejects else None
        predictions = [name for name in rows.column_names if name.startswith("prediction")]
        return {
            "rows": rows.drop_columns(predictions),
            "rejected": None if rejected is None else pa.Table.from_pylist(rejected),
            "splits": rows,
            "statistics": self.headway("statistics", folder, *window)["statistics"],
            "transform": learned(Path(self.headway("train", folder, *window)["outputs"]["transform"])),
            "predictions": [
                of_eval.select([name for name in rows.column_names if name in (*KNOWN_AS, *predictions)]),
                pa.concat_tables([pq.read_table(scored / part["file"]) for part in scoring["parts"]]),
            ],
            "metrics": {name: record.get(name) for name in ("metrics", "baselines")},
            "verdict": {
                "state": STATUSES.get(record["state"], record["state"]),
                "verdict": status_of(record["verdict"]),
                "version": record["version"],
            },
            "export": scoring["saved_model"],
        }

    def add_signatures(self, results: list[Result]) -> None:
        """One process reads the signatures of all exports, since it imports TensorFlow."""
        done = [result for result in results if "error" not in result]
        line, asked = [self.programs / "python", "-P", "-c", PROBE], json.dumps([result["export"] for result in done])
        read = subprocess.run(line, input=asked, cwd=self.work, env=self.environment, capture_output=True, text=True)
        for number, result in enumerate(done):
            result |= {"error": read.stderr} if read.returncode else {"signatures": json.loads(read.stdout)[number]}


def learned(output: Path) -> dict[str, Any]:
    """What the transform learned: all JSON files of its output but the manifest, without the number of their form."""
    files = [json.loads(path.read_text()) for path in sorted(output.glob("*.json")) if path.name != "manifest.json"]
    return {name: value for file in files for name, value in file.items() if name not in ("format", "version")}


@contextlib.contextmanager
def bucket_server() -> Iterator[dict[str, str]]:
    """An S3 endpoint on this machine with a bucket for each side; the environment that leads to it."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        url = "http://{}:{}".format(*server.get_host_and_port())
        for side in ("old", "new"):
            urllib.request.urlopen(urllib.request.Request(f"{url}/{side}", method="PUT")).close()
        names = {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        yield names | {"AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
    finally:
        server.stop()


def run(
    old: Checkout, new: Checkout, pipelines: list[Pipeline], rows: int | None
) -> dict[str, dict[str, list[Difference]]]:
    """Runs the pipelines in both by turns; the differences of each run by aspect."""
    results: dict[str, list[Result]] = {}
    for pipeline in pipelines:
        for side in (old, new):
            store = f"s3://{side.work.name}/store" if pipeline.name == "bucket" else "store"
            pipeline.make(side.work / pipeline.name, store, rows)
        for number in range(len(pipeline.windows)):
            ended = results[f"{pipeline.name}, again" if number else pipeline.name] = []
            for side in (old, new):
                try:
                    ended.append(side.result(pipeline, number))
                except CommandError as error:
                    ended.append({"error": str(error)})
        print(f"# {pipeline.name} ran", file=sys.stderr, flush=True)
    for side, ended in zip((old, new), zip(*results.values(), strict=True), strict=True):
        side.add_signatures(list(ended))
    return {name: compare(*pair) for name, pair in results.items()}


def report(differences: dict[str, dict[str, list[Difference]]]) -> str:
    """A row for each run, a column for each aspect; below them each difference with an example."""
    cells = [["pipeline", *ASPECTS]]
    lines = []
    for name, found in differences.items():
        cells.append([name])
        for aspect in ASPECTS:
            all_of_it = found.get(aspect)
            more = f"; {len(all_of_it) - 1} more" if all_of_it and len(all_of_it) > 1 else ""
            cells[-1].append("-" if all_of_it is None else all_of_it[0].what + more if all_of_it else "same")
            lines += [f"{name}, {aspect}: {'; '.join(filter(None, one))}" for one in (all_of_it or [])[:TOLD]]
            if all_of_it and len(all_of_it) > TOLD:
                lines.append(f"{name}, {aspect}: {len(all_of_it) - TOLD} more")
    widths = [max(len(row[place]) for row in cells) for place in range(len(cells[0]))]
    cells.insert(1, ["-" * width for width in widths])
    table = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in cells]
    return "\n".join([*table, "", *lines])


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("old", type=Path, help="a checkout with its environment in .venv")
    options.add_argument("new", type=Path, help="another")
    names = [pipeline.name for pipeline in PIPELINES]
    options.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    options.add_argument("--rows", type=int, help="rows of each pipeline (500 to 3,000)")
    given = options.parse_args()
    header("same")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headway-same-") as folder, contextlib.ExitStack() as stack:
        environment = stack.enter_context(bucket_server()) if "bucket" in given.only else {}
        old, new = (Checkout(getattr(given, side), Path(folder) / side, environment) for side in ("old", "new"))
        differences = run(old, new, [one for one in PIPELINES if one.name in given.only], given.rows)
    print(f"{report(differences)}\n{time.monotonic() - began:.0f} s")
    return int(any(found for each in differences.values() for found in each.values()))


if __name__ == "__main__":
    raise SystemExit(main())
