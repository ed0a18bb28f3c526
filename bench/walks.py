"""How many files of the product a reader meets on five walks, by tracing: which functions are called, in every process.

    python bench/walks.py                  # the five figures; two runs of a small pipeline, about a minute
    python bench/walks.py --files          # and the files of each walk, in the order in which they were first entered

A run on a table of flights is traced by `sys.settrace`, in the threads and child processes too: a module `sitecustomize` on
PYTHONPATH runs this file in each. A file is entered when one of its functions is called; what an import calls does not count,
nor what is called under the places that `ASIDE` names, which lead elsewhere (progress, the pages of a run and of the store).
The walks:

row         from a CSV row to a training step: the files entered while a range of the raw file is ingested (`ROW`), or while
            the train rows are opened, transformed and batched (`ROW` too), and the file of the step that takes them (`STEP`).
rate        learning_rate from pipeline.yaml to the optimizer: the files of the functions that are given the number, the
            schedule that holds it or an array of the next steps' rates, as an argument or in an argument's own fields,
            `self` included. Text that has the number in it (YAML, JSON on its way to another process) does not count.
verdict     the verdict from the gate to the terminal: the same of `VERDICT`, and of the same as JSON values, from the first
            call of the gate on.
run         `headway run` to the champion: the main line. When the pipeline is read, a stage's output is looked for or
            committed, a stage is handed to another process, the champion is replaced, the run is written down (`LINE`), a
            stage is made, or its function called: the files of the functions that are being called then, in that thread and
            in the process's first one. It is what stands above the stages, without what they do inside.
deployment  the same of the Prefect flow (`FLOW`), on a temporary server. The worker's own file and what Prefect does are
            not in it.

Beside the last two stands how many files are entered at all. What moved is to be named in the tables anew: a name that the
runs do not meet ends the bench with an error.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

# --- what the walks go by: "file:function", a class and a function for all that is defined in them

ROW = (
    "beam_jobs/ingest/range_worker.py:ingest_range",
    "tfcore/train/rows.py:training_data",
    "tfcore/train/rows.py:TrainingData.stack_reader",
)
STEP = ("tfcore/train/loop.py:Learner.run",)
SCHEDULES = "tfcore.train.schedule"
"""Classes of learning rates."""
GATE = ("headway/evaluation/gate.py:gate",)
VERDICT = {"Verdict", "Check", "Remark", "Explanation", "RunSummary"}
"""Classes of the product: the verdict, what it is made of, and what people are told of it."""
LINE = (
    "flows/config/pipeline.py:read_pipeline",
    "headway/storage/store.py:Store.find",
    "headway/storage/store.py:Store.open",
    "tfcore/runtime/tensorflow_process.py:Child.call",
    "headway/registry/registry.py:Registry.promote",
    "flows/records.py:RunRecord.save",
)
ASIDE = (
    "flows/pipeline/run.py:_Run._draw",
    "flows/pipeline/run.py:_Run._renew_site",
    "flows/pipeline/mlflow_tracking.py",
    "headway/monitor.py:Monitor",
)
NAMES = {*ROW, *STEP, *GATE, *LINE, *ASIDE}
STAGE = "headway.stages.stage_class:Stage"
FLOW = "flows.orchestration.flows:retrain"
HEADWAY = "flows.cli.app"
"""The module whose `main` the installed script `headway` calls."""

IMPORT = "<frozen importlib._bootstrap>"
PACKAGES = ("headway", "beam_jobs", "tfcore", "flows")
RATE = 0.0123456789
RUNS = {
    "run": {
        "row": "a CSV row to a training step",
        "rate": "learning_rate to the optimizer",
        "verdict": "the verdict to the terminal",
        "line": "headway run to the champion",
    },
    "deployment": {"line": "prefect deployment run to the champion"},
}
MOST_CALLS = 1000  # of a function in a process: later ones are not looked at
ROOT = Path(__file__).resolve().parents[1]
TRACED, PLACE = "__walk__", "HEADWAY_WALKS"
"""This module's name in a traced process, and the environment variable that names the file which traced processes write to."""
PIPELINE = f"""
name: flights
source: {{format: csv, path: flights.csv}}
label: arr_delay > 15
columns: {{dep_delay: standardize, distance: standardize, carrier: vocabulary}}
split: {{mode: hash, eval: 0.3}}
model: {{name: mlp, hidden: [8]}}
training: {{steps: 60, batch_size: 64, learning_rate: {RATE}}}
gate: {{baseline: false}}
store: store
"""


# --- in a traced process


class Tracer:
    """Is called with the frame of each call of a Python function, and writes down each file that a walk enters."""

    def __init__(self, log: Path):
        self._log, self._entered = log, set[tuple[str, str]]()
        self._files: dict[str, str | None] = {}
        self._roots = tuple(f"{ROOT}/{package}/" for package in PACKAGES)
        self._calls = Counter[CodeType]()
        self._gated = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code, file = frame.f_code, self._file(frame.f_code)
        made = code.co_name == "__init__" and code.co_filename.endswith("/pydantic/main.py")
        if made and _is_stage(frame.f_locals["self"]):
            self._main_line(frame.f_back)
        if file is None or not _is_function(frame) or self._calls[code] >= MOST_CALLS:
            return
        self._calls[code] += 1
        line = [*self._functions(frame)]
        if line[-1] == (IMPORT, ""):
            return
        self._enter("all", file)
        for name in filter(lambda name: _named(line[0], (name,)), NAMES):
            self._enter("met", name)
        if any(_named(one, ASIDE) for one in line):
            return
        if _named(line[0], STEP) or any(_named(one, ROW) for one in line):
            self._enter("row", file)
        self._gated |= _named(line[0], GATE)
        given = _arguments(frame)
        if any(_holds(value, _is_rate) for value in given):
            self._enter("rate", file)
        if self._gated and any(_holds(value, _is_verdict) for value in given):
            self._enter("verdict", file)
        if _named(line[0], LINE) or _runs_stage(frame):
            self._main_line(frame)

    def _main_line(self, frame: FrameType | None) -> None:
        main = threading.main_thread().ident or 0
        outer = None if main == threading.get_ident() else sys._current_frames().get(main)
        for above, _ in reversed([*self._functions(frame), *self._functions(outer)]):
            self._enter("line", above)

    def _file(self, code: CodeType) -> str | None:
        """The path of a file of the product within the checkout."""
        name = code.co_filename
        if name not in self._files:
            self._files[name] = name[len(f"{ROOT}/") :] if name.startswith(self._roots) else None
        return self._files[name]

    def _functions(self, frame: FrameType | None) -> Iterator[tuple[str, str]]:
        """(file, function) of the product's functions that are being called, the innermost first, up to an import."""
        while frame is not None:
            if frame.f_code.co_filename == IMPORT:
                yield IMPORT, ""
                return
            file = self._file(frame.f_code)
            if file is not None and _is_function(frame):
                yield file, frame.f_code.co_qualname
            frame = frame.f_back

    def _enter(self, walk: str, file: str) -> None:
        if (walk, file) not in self._entered:
            self._entered.add((walk, file))
            with self._log.open("a", encoding="utf-8") as out:  # at once: processes end in many ways
                out.write(f"{time.monotonic_ns()} {walk} {file}\n")


def _is_function(frame: FrameType) -> bool:
    """Whether it is a function's frame, or the body of the module that a process runs."""
    return bool(frame.f_code.co_flags & 1) or frame.f_globals.get("__name__") == "__main__"


def _named(at: tuple[str, str], names: tuple[str, ...]) -> bool:
    return any(f"{at[0]}:{at[1]}.".startswith(f"{name}." if ":" in name else f"{name}:") for name in names)


def _arguments(frame: FrameType) -> list[Any]:
    code, found = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    return [found[name] for name in code.co_varnames[:count] if name in found]


def _fields(value: Any) -> list[Any]:
    """The values of a mapping, a sequence, or an object of the product; of others there are none."""
    if type(value) is dict:
        return list(value.values())
    if type(value) in (list, tuple):
        return list(value[:100])
    if type(value).__module__.partition(".")[0] in PACKAGES:
        return list(getattr(value, "__dict__", {}).values())
    return []


def _is_rate(value: Any) -> bool:
    if type(value) is float:
        return value == RATE
    if type(value).__name__ == "ndarray":  # of the next steps, as float32
        return bool(value.size) and value.dtype.kind == "f" and abs(value.flat[0] - RATE) < 1e-8
    return type(value).__module__ == SCHEDULES and RATE in _fields(value)


def _is_verdict(value: Any) -> bool:
    if type(value) is dict:
        return "status" in value and "checks" in value
    return type(value).__name__ in VERDICT and type(value).__module__.partition(".")[0] in PACKAGES


def _holds(value: Any, wanted: Callable[[Any], bool]) -> bool:
    """Whether a value is what is wanted, or has it in a field."""
    return wanted(value) or any(map(wanted, _fields(value)))


def _is_stage(value: object) -> bool:
    return any(f"{kind.__module__}:{kind.__name__}" == STAGE for kind in type(value).__mro__)


def _runs_stage(frame: FrameType) -> bool:
    """Whether it is the function of the stage that it is given, or of the first of several."""
    given = _arguments(frame)[:1]
    given = given[0][:1] if given and isinstance(given[0], list | tuple) else given
    called = f"{frame.f_globals.get('__name__')}:{frame.f_code.co_qualname}"
    return any(_is_stage(each) and called in (type(each).runs, type(each).runs_many) for each in given)


# --- the bench


def main() -> None:
    import pyarrow.csv as pacsv
    from common import header, raw_flights

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS), help="the walks of this run")
    parser.add_argument("--files", action="store_true", help="the files of each walk")
    arguments = parser.parse_args()
    header("walks")
    table = raw_flights().slice(0, 2000)
    for run in arguments.only:
        with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
            folder = Path(scratch)
            pacsv.write_csv(table, folder / "flights.csv")
            (folder / "pipeline.yaml").write_text(PIPELINE, encoding="utf-8")
            entered = walked(folder, flow=run == "deployment")
        for walk, title in RUNS[run].items():
            beside = f" (of {len(entered['all'])} that are entered at all)" if walk == "line" else ""
            print(f"{title}: {len(entered[walk])} files{beside}", flush=True)
            print(*(f"    {file}\n" for file in entered[walk] if arguments.files), sep="", end="")


def walked(folder: Path, *, flow: bool) -> dict[str, dict[str, None]]:
    """The files that each walk enters while the pipeline in the folder is run, in the order of their first calls."""
    hooks, log = folder / "hooks", folder / "entered"
    hooks.mkdir()
    module, _, function = FLOW.partition(":")
    begin = f"import runpy; runpy.run_path({str(Path(__file__).resolve())!r}, run_name='{TRACED}')"
    (hooks / "sitecustomize.py").write_text(begin)
    (hooks / "walked_flow.py").write_text(f"import sys; from {module} import {function}; {function}(sys.argv[1])")
    env = os.environ | {"PREFECT_HOME": str(folder / "prefect"), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    command = ["-m", "walked_flow"] if flow else ["-c", f"from {HEADWAY} import main; raise SystemExit(main())", "run"]
    with server(env) if flow else contextlib.nullcontext({}) as address:
        env |= address | {"PYTHONPATH": str(hooks), PLACE: str(log)}
        typed = [sys.executable, "-P", *command, str(folder)]
        done = subprocess.run(typed, env=env, capture_output=True, text=True, check=False)
    if done.returncode or not (folder / "store" / "models" / "flights" / "champion.json").exists():
        raise SystemExit(f"the run promoted nothing:\n{done.stdout}{done.stderr}")
    entered: dict[str, dict[str, None]] = {}
    for _, walk, file in sorted((line.split() for line in log.read_text().splitlines()), key=lambda line: int(line[0])):
        entered.setdefault(walk, {})[file] = None
    if lost := NAMES - entered["met"].keys():
        raise SystemExit(f"nothing calls {', '.join(sorted(lost))} any more: bench/walks.py has to name what it became")
    return entered


@contextlib.contextmanager
def server(env: dict[str, str]) -> Iterator[dict[str, str]]:
    """A Prefect server of its own, on SQLite: the variables that name it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    url, command = f"http://127.0.0.1:{port}/api", [sys.executable, "-m", "prefect", "server", "start", "--port", port]
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT) as process:
        try:
            for _ in range(1200):
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"{url}/health", timeout=10).close()
                    break
                time.sleep(0.1)
            yield {"PREFECT_API_URL": url}
        finally:
            process.terminate()


if __name__ == TRACED:
    threading.settrace(tracer := Tracer(Path(os.environ[PLACE])))
    sys.settrace(tracer)
elif __name__ == "__main__":
    main()
