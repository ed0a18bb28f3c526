"""The command line: `headway COMMAND`.

Exit codes: 0 done; 1 a bug; 2 bad usage or config; 3 bad data; 4 the gate did not promote; 5 the store; 6 locked by
another process; 130 stopped by Ctrl-C (what was done is kept). Nothing heavy is imported before a command needs it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType

DESCRIPTION = "From raw files to a promoted TensorFlow model."
EPILOG = """\
exit codes: 0 done; 1 a bug; 2 bad usage or config; 3 bad data; 4 the gate did not promote; 5 the store;
6 locked by another run; 130 stopped by Ctrl-C (what was done is kept)"""
STAGE_COMMANDS = {
    "ingest": ("ingest", "raw files to shards, statistics and quarantine"),
    "stats": ("statistics", "the window's statistics, per split"),
    "validate": ("validate", "check the window against the schema"),
    "train": ("train", "everything up to trained weights"),
    "evaluate": ("evaluate", "everything up to metrics, of the candidate and the champion"),
    "gate": ("gate", "everything up to the verdict; promotes nothing"),
    "export": ("replay", "everything up to the exported, replayed SavedModel, whatever the verdict; promotes nothing"),
}


_MODULES = {
    "cat": "data_commands",
    "quarantine": "data_commands",
    "export-examples": "data_commands",
    "knobs": "knob_commands",
    "debug": "debug_commands",
}
"""Commands that lie in modules of their own."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    options = parser().parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from headway.errors import HeadwayError

    try:
        return int(_command(options.command)(options) or 0)
    except HeadwayError as error:
        _complain(options, str(error), error.exit_code)
        return error.exit_code
    except KeyboardInterrupt:
        _complain(options, "stopped", 130)
        return 130
    except BrokenPipeError:
        # the reader of our output left: not an error of ours
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _complain(options: argparse.Namespace, text: str, code: int) -> None:
    if getattr(options, "json", False):
        import json

        print(json.dumps({"error": text, "exit_code": code}))
    print(f"headway {options.command}: {text}", file=sys.stderr)


def _command(name: str) -> Callable[[argparse.Namespace], int | None]:
    from importlib import import_module

    module = import_module(f"flows.{_MODULES.get(name, 'commands')}")
    return getattr(module, "stage" if name in STAGE_COMMANDS else name.replace("-", "_"))


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    root = argparse.ArgumentParser(
        prog="headway", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    root.add_argument("--version", action="version", version=_version())
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, text: str, *, pipeline: bool = True) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        command.add_argument("--json", action="store_true", help="answer in JSON on stdout, say nothing else")
        if pipeline:
            of_pipeline(command)
        return command

    def of_pipeline(command: argparse.ArgumentParser) -> None:
        command.add_argument("pipeline", nargs="?", default=".", help="pipeline.yaml, or its folder (default: here)")
        command.add_argument(
            "--set", action="append", default=[], metavar="KEY=VALUE", help="override a key: training.epochs=3"
        )

    def window(command: argparse.ArgumentParser) -> None:
        command.add_argument(
            "--window", type=_window, help="how many spans, or how much time: 30d, 12m (default: all up to --until)"
        )
        command.add_argument("--until", default="latest", help="the last span (default: latest)")
        command.add_argument("--seed", type=int, help="instead of the pipeline's")

    def waits(command: argparse.ArgumentParser) -> None:
        command.add_argument("--wait", type=float, default=0.0, metavar="SECONDS", help="wait for another run's lock")

    run = add("run", "the whole road: ingest to promotion; what is done already is not done again")
    window(run)
    waits(run)
    run.add_argument("--force", action="store_true", help="promote whatever the gate says")
    plan = add("plan", "what a run would do, and why")
    window(plan)
    for name, (_, text) in STAGE_COMMANDS.items():
        command = add(name, text)
        if name == "validate":
            command.description = (
                f"{command.description} It ends with 0 whatever it finds: errors stop what comes behind it."
            )
            command.add_argument("--serving", metavar="FILE", help="logged requests to compare the train rows with")
        window(command)
        waits(command)
    promoted = add("promote", "make a version, or the last run's held candidate, the champion")
    promoted.add_argument(
        "--to", type=int, metavar="VERSION", help="a version of the registry (default: the held candidate)"
    )
    promoted.add_argument("--reason", default="asked for on the command line")
    promoted.add_argument("--force", action="store_true", help="though it was rolled back")
    window(promoted)
    waits(promoted)
    rollback = add("rollback", "go back to the champion before, or to a version")
    rollback.add_argument("--to", type=int, metavar="VERSION")
    rollback.add_argument("--reason", default="asked for on the command line")
    rollback.add_argument("--force", action="store_true", help="though that version was rolled back itself")
    predict = add("predict", "raw files in, predictions of a model out, in the order of the rows")
    predict.add_argument("--model", default="champion", help="champion (default), a version, or a SavedModel's folder")
    predict.add_argument("--input", required=True, metavar="PATH", help="a file, a folder or a glob")
    predict.add_argument("--output", required=True, metavar="FOLDER", help="empty, new, or of an earlier predict")
    predict.add_argument("--format", help="of the input: parquet, csv, jsonl, ... (default: the pipeline's)")
    predict.add_argument("--write", choices=["parquet", "jsonl"], default="parquet", help="what to write")
    predict.add_argument("--columns", metavar="A,B", help="columns that go through (default: the keys)")
    predict.add_argument(
        "--max-quarantine", type=float, metavar="SHARE", help="rows that may be rejected (default: the pipeline's)"
    )
    add("models", "the versions in the registry, and the champion")
    runs = add("runs", "the runs of this store, newest first")
    runs.add_argument("--limit", type=_count, default=20)
    show = add("show", "one run in full")
    show.add_argument("run", nargs="?", default="latest", help="its name (default: latest)")
    verify = add("verify", "read every byte of the store and compare checksums")
    verify.set_defaults(code=5)
    gc = add("gc", "remove what no kept run points at")
    gc.add_argument(
        "--keep", type=_count, default=20, metavar="RUNS", help="runs to keep of each pipeline (default: 20)"
    )
    gc.add_argument("--dry-run", action="store_true", help="only say what would go")
    schema = add("schema", "the JSON Schema of pipeline.yaml, for editors; or a proposal for the schema file")
    schema.add_argument(
        "--update", action="store_true", help="propose a schema.pbtxt that holds the window; never overwrites it"
    )
    schema.add_argument(
        "--columns", action="store_true", help="what became of each column: its type, its transform, and why"
    )
    window(schema)
    waits(schema)
    cat = add("cat", "rows of a shard as JSON lines", pipeline=False)
    cat.add_argument("shards", nargs="+", help=".tfrecord files, ours or another's, or folders of them")
    cat.add_argument("--rows", type=_rows, default=10, metavar="N", help="how many (default: 10; 'all')")
    cat.add_argument("--columns", metavar="A,B", help="only these")
    rejected = add("quarantine", "the rows that the latest run's ingest rejected, and why")
    rejected.add_argument("--span", help="of this span only")
    rejected.add_argument("--limit", type=_count, default=20, metavar="ROWS", help="rows to show (default: 20)")
    exported = add("export-examples", "the window as classic tf.Examples, one a row")
    window(exported)
    waits(exported)
    exported.add_argument("--output", required=True, metavar="FOLDER", help="a folder that does not exist yet")
    exported.add_argument("--split", choices=("train", "eval", "test"), help="only this one")
    exported.add_argument("--tfds", action="store_true", help="for tensorflow_datasets.builder_from_directory")
    knobs = add("knobs", "what a running training reads anew at every step; NAME=VALUE changes it")
    knobs.add_argument("values", nargs="*", metavar="NAME=VALUE", help="NAME=schedule lets it go again")
    debugged = add("debug", "look into a training: 'step' runs one eagerly and says what is in it", pipeline=False)
    debugged.add_argument("what", choices=("step",), help="one training step: ranges, gradients, graph, profile")
    of_pipeline(debugged)
    window(debugged)
    debugged.add_argument("--steps", type=_count, default=5, metavar="N", help="compiled steps (default: 5)")
    debugged.add_argument("--out", metavar="FOLDER", help="for the report (default: debug/ in the store)")
    debugged.add_argument("--resumed", action="store_true", help="the step after the newest checkpoint, not the first")
    debugged.add_argument("--no-profile", action="store_true", help="write no profile for TensorBoard")
    add("doctor", "check versions, TensorFlow's devices, Prefect, the disk and the store")
    return root


def _window(text: str) -> int | str:
    """A number of spans, or a time such as 30d, which the road looks at."""
    return int(text) if text.isdecimal() else text


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of 0 or more")
    return int(text)


def _rows(text: str) -> int | None:
    return None if text == "all" else _count(text)


def _version() -> str:
    from importlib import metadata

    return f"headway {metadata.version('headway')}"


def stop_on_signals(stop: threading.Event, say: Callable[[str], None]) -> None:
    """Ctrl-C or SIGTERM asks for a clean stop; a second one ends the process."""

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        say("stopping: saving what is done (again to stop at once)")

    signal.signal(signal.SIGINT, handle)
    signal.signal(signal.SIGTERM, handle)


if __name__ == "__main__":
    sys.exit(main())
