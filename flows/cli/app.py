"""The command line: `headway COMMAND`.

Exit codes: 0 done; 1 any other error; 2 bad usage or config; 3 bad data; 4 the gate did not promote; 5 the store; 6 locked by
another process; 7 a stage was stopped at its limit; 130 stopped by Ctrl-C (what was done is kept). Nothing heavy is imported
before a command needs it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType

from cyclopts import App, CycloptsError, Parameter

EPILOG = """\
exit codes: 0 done; 1 any other error; 2 bad usage or config; 3 bad data; 4 the gate did not promote; 5 the store;
6 locked by another run; 7 a stage was stopped at its limit; 130 stopped by Ctrl-C (what was done is kept)"""
COMMANDS = {
    "Train and promote": {
        "init": "drafts.init: look at data, and write a pipeline.yaml that runs",
        "import-tfx": "drafts.from_tfx: write a pipeline.yaml with the meaning of a TFX pipeline, and list what has no "
        "counterpart",
        "run": "commands: ingest to promotion; finished work is not repeated",
        "plan": "commands: what a run would do, and why",
        "promote": "versions.promotion: make a version, or the last run's held candidate, the champion; or name it by an alias",
        "rollback": "versions.promotion: go back to the champion before, or to a version",
        "predict": "commands: raw files in, predictions of a model out, in the order of the rows",
        "serve": "serve: answer requests for predictions over HTTP, as TensorFlow Serving does",
    },
    "Leave alone": {
        "watch": "operations.span_commands: retrain when a new span is complete, exactly once",
        "backfill": "operations.span_commands: train and judge a range of past windows; promotes nothing unless told to",
        "predict-spans": "operations.span_commands: the champion's predictions of each new span, once",
        "monitor": "operations.span_commands: drift of new spans, skew of requests, the champion on labels that came "
        "since\n\nIt ends with 3 when there is an alarm.",
        "deploy": "operations.deploying_commands: make or renew what pipelines need on the server of PREFECT_API_URL",
        "undeploy": "operations.deploying_commands: remove pipelines from the server; their stores and past runs stay",
    },
    "Run the DAG up to one stage": {
        "ingest": "commands: raw files to shards, statistics and quarantine",
        "stats": "commands: the window's statistics, per split",
        "validate": "commands: check the window against the schema\n\nIt ends with 0 whatever it finds: errors stop the "
        "stages after it.",
        "train": "commands: everything up to trained weights",
        "evaluate": "commands: everything up to metrics, of the candidate and the champion",
        "gate": "commands: everything up to the verdict; promotes nothing",
        "export": "commands: everything up to the exported and replayed SavedModel, whatever the verdict; promotes nothing",
    },
    "Study": {
        "backtest": "studies.past_windows: train and judge over past windows, each on the span after it; promotes nothing",
        "tune": "studies.tuning: try settings of the training and the model, judged on a holdout of the train rows",
        "skew": "studies.logged_requests: hold logged requests against the same rows in the data, value by value\n\nIt ends "
        "with 3 when something differs.",
        "ablate": "studies.ablation: train without each column, and compare with the model that has them all",
    },
    "Look": {
        "models": "versions.promotion: the versions in the registry, the champion and the aliases",
        "compare": "versions.comparison: two versions or runs side by side: metrics, config, columns, data, size, verdict",
        "lineage": "versions.trace: what a version was made from, and what of that is gone or changed today",
        "runs": "store: the runs of this store, newest first",
        "show": "store: one run in full",
        "why": "runs.reasons: why a stage of the last run ran, or was reused",
        "logs": "runs.reasons: what a run reported, line by line, with the time in UTC",
        "report": "runs.reports: one run as a page with figures: verdict, data, training, evaluation, lineage",
        "ui": "runs.ui: a local page over stores: runs as they go on, versions, champions, drift, spans, disk",
        "cat": "data: rows of a shard as JSON lines",
        "quarantine": "data: the rows that the latest run's ingest rejected, and why",
        "export-examples": "data: the window as classic tf.Examples, one per row",
        "knobs": "knobs: values that a running training rereads at every step; NAME=VALUE changes one",
        "debug": "debug: inspect one training step eagerly, op by op: 'headway debug step'",
    },
    "Keep in order": {
        "verify": "store: read every byte of the store and compare checksums",
        "backup": "store: copy what is new in the store to another folder, also while runs write; the copy is a store too",
        "clean": "store: what of the store could be deleted, and how much; --yes deletes it",
        "gc": "store: remove outputs that no kept run uses; path by path, for scripts",
        "schema": "commands: the JSON Schema of pipeline.yaml, for editors; or a proposal for the schema file",
        "doctor": "commands: check versions, TensorFlow's devices, Prefect, the disk and the store",
        "completion": "shell.completion: completion of commands and options by the Tab key, for bash, zsh and fish",
    },
}
"""Group, name, the module in which the function lies, and its help."""


def application() -> App:
    """Every command; its module is imported when it is called."""
    app = App(
        name="headway",
        help="From raw files to a promoted TensorFlow model.",
        help_epilogue=EPILOG,
        version=_version,
        help_flags=(),
        default_parameter=Parameter(negative=()),
        suppress_keyboard_interrupt=False,
        result_action="return_value",
    )
    for group, commands in COMMANDS.items():
        for name, entry in commands.items():
            module, _, text = entry.partition(": ")
            app.command(f"flows.cli.{module}:{name.replace('-', '_')}", name=name, help=text, group=group)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    own_tokens = tokens[: tokens.index("--")] if "--" in tokens else tokens
    command = next((token for token in own_tokens if not token.startswith("-")), "")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from headway.errors import HeadwayError
    from headway.process import own, quiet_libraries
    from headway.redaction import protect

    protect()

    if arguments is None:  # this process is ours
        own()
        quiet_libraries()
    app = application()
    if (wrong := _log_format(own_tokens, process=arguments is None)) is not None:
        return _complain(own_tokens, command, f"{wrong!r} is not a log format\n  fix: --log-format text, or json", 2)
    try:
        if not tokens or "--help" in own_tokens or "-h" in own_tokens:
            from flows.cli.usage import page

            print(page(app, command), file=sys.stdout if tokens else sys.stderr)
            return 0 if tokens else 2
        return int(app(tokens, exit_on_error=False, print_error=False) or 0)
    except CycloptsError as mistake:
        from flows.cli.usage import usage_error

        error: HeadwayError = usage_error(mistake, app, command)
    except HeadwayError as raised:
        error = raised
    except BrokenPipeError:
        # the reader of our output left: not an error of ours
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as raised:
        from headway.storage.atomic_io import storage_error

        if (refused := storage_error(raised)) is None:
            raise
        error = refused
    except KeyboardInterrupt:
        return _complain(own_tokens, command, "stopped", 130)
    return _complain(own_tokens, command, str(error), error.exit_code)


def _log_format(tokens: Sequence[str], *, process: bool) -> str | None:
    """Make stderr a stream of JSON lines where that is asked for, before anything is printed; the format if there is none such.

    Args:
        process: whether this process is the command's.
    """
    choice = os.environ.get("HEADWAY_LOG_FORMAT", "")
    for place, token in enumerate(tokens):
        name, equals, value = token.partition("=")
        if name == "--log-format":
            choice = value if equals else "".join(tokens[place + 1 : place + 2])
    if choice in ("", "text"):
        return None
    if choice != "json":
        return choice
    if process:
        from flows.observability.json_stream import take_over

        take_over()
    return None


def _complain(tokens: Sequence[str], command: str, text: str, code: int) -> int:
    if "--json" in tokens:
        import json

        print(json.dumps({"error": text, "exit_code": code}))
    said = f"headway {command}".rstrip() + f": {text}"
    streams = sys.modules.get("flows.observability.json_stream")
    told = None if streams is None else streams.stream()
    if told is None:
        print(said, file=sys.stderr)
    else:
        told.write("command.failed", said, level="error", fields={"exit_code": code, "command": command})
    return code


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
