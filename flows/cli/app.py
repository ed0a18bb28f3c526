"""The command line: `headway COMMAND`; `EPILOG` has its exit codes. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfcore.runtime import early_start

if TYPE_CHECKING:
    from cyclopts import App

    from headway.errors import HeadwayError

EPILOG = """\
exit codes: 0 done; 1 any other error; 2 bad usage or config; 3 bad data; 4 the gate did not promote; 5 the store;
6 locked by another run; 130 stopped by Ctrl-C (what was done is kept)"""
COMMANDS = {
    "Train and promote": {
        "init": "init: look at data, and write a pipeline.yaml for it",
        "run": "commands: take raw files to a promoted model; what is already done is reused\n\nWith --to validate the exit code "
        "is 0 even if the data have errors; those stop a run that goes further.",
        "plan": "commands: list the steps that a run would do, and why",
        "promote": "versions.promotion: make a version the champion, or point an alias at it",
        "rollback": "versions.promotion: make the champion before this one, or another version, the champion again",
        "predict": "commands: predict the rows of raw files, in their order; with --spans those of each new span, once",
        "serve": "serve: answer requests over HTTP with the champion's predictions, as TensorFlow Serving does",
    },
    "Automate": {
        "backfill": "operations.span_commands: train and judge a model for each of several past windows; promotes none without "
        "--promote",
        "monitor": "operations.span_commands: check new spans for drift, and the champion on new labels\n\n"
        "The exit code is 3 when there is an alarm.",
        "deploy": "operations.deploying_commands: create, update or remove the deployments, schedules and alarms of pipelines on "
        "a Prefect server\n\nPREFECT_API_URL says which server, PREFECT_API_AUTH_STRING its password.",
    },
    "Experiment": {
        "tune": "experiments: try settings of the training and the model, and write the best to tuned.yaml\n\nA holdout of "
        "the train rows decides, never the rows of the gate.",
    },
    "Inspect": {
        "models": "versions.promotion: list the versions of the model, with the champion and the aliases",
        "compare": "versions.comparison: compare two versions or runs: metrics, config, columns, data, size, verdict",
        "runs": "store: list the runs of this store, newest first",
        "show": "store: show what a run was made from, why its steps ran, where their outputs lie, and how it ended",
        "report": "reports: print the path of a run's report, an HTML page; --open shows it",
        "quarantine": "data: show the rows that the latest run rejected, and why",
        "export-rows": "data: write the rows of a window for other tools: Parquet or CSV with split, label and prediction, or "
        "classic tf.Examples",
    },
    "Maintain": {
        "verify": "store: read every byte of the store and compare checksums",
        "clean": "store: list what can be deleted from the store, and how much; --yes deletes it",
        "schema": "commands: print the JSON Schema of pipeline.yaml, for editors; with --update propose a schema.pbtxt",
        "doctor": "commands: check versions and extras, TensorFlow's devices, and whether the disk and the store can be used",
    },
}
"""Group, name, the module in which the function lies, and its help."""
NOT_TRAINING = ("ingest", "statistics", "validate")
"""What `headway run --to` names where it trains nothing."""


def application() -> App:
    """Every command; its module is imported when it is called."""
    from cyclopts import App, Parameter

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
    app.register_install_completion_command()
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # else pydantic looks through every package that is installed for its plugins
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if arguments is None:
        # threads of OpenBLAS wait for each other in a loop, and the last digits of a sum depend on their number
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with early_start.begun() if arguments is None and surely_trains(sys.argv[1:]) else contextlib.nullcontext():
        return _run(arguments)


def surely_trains(tokens: Sequence[str]) -> bool:
    """Whether a command will train, as far as a glance at it can tell: its pipeline has the usual store, without data in it.

    False where it takes more than a glance, such as a store elsewhere: then TensorFlow starts later."""
    command, *rest = tokens or [""]
    last = next((word for option, word in itertools.pairwise(rest) if option == "--to"), "")
    elsewhere = ("-h", "--help", "--set=store", "--set=@", "--to=", "store", "@")
    if command != "run" or last in NOT_TRAINING or any(token == "--" or token.startswith(elsewhere) for token in rest):
        return False
    with contextlib.suppress(OSError, ValueError):  # no such file, or no text
        paths = [token for token in rest if not token.startswith("-") and Path(token).exists()]
        file = Path(*paths, "pipeline.yaml") if Path(*paths).is_dir() else Path(*paths)
        written = [line.partition("#")[0] for line in file.read_text(encoding="utf-8").splitlines()]
        ingested = file.resolve().parent / "store" / "stages" / "ingest"
        return len(paths) < 2 and not any("store" in line for line in written) and not ingested.exists()
    return False


def _run(arguments: Sequence[str] | None) -> int:
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    own_tokens = tokens[: tokens.index("--")] if "--" in tokens else tokens
    command = next((token for token in own_tokens if not token.startswith("-")), "")
    from cyclopts import CycloptsError

    from headway.errors import Cancelled, HeadwayError
    from headway.process import own, quiet_libraries
    from headway.redaction import protect

    protect()

    if arguments is None:  # this process is ours
        own()
        quiet_libraries()
    app = application()
    if wants_json_log(own_tokens):
        from flows.progress.json_log import log_as_json

        log_as_json(quiet="--quiet" in own_tokens)
    try:
        if not tokens or ({"--help", "-h"} & {*own_tokens} and (not command or command in app)):
            from flows.cli.usage import page

            print(page(app, command), file=sys.stdout if tokens else sys.stderr)
            return 0 if tokens else 2
        return int(app(tokens, exit_on_error=False, print_error=False) or 0)
    except CycloptsError as mistake:
        from flows.cli.usage import usage_error

        error: HeadwayError = usage_error(mistake, command)
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
        error = Cancelled("stopped")
    return _complain(own_tokens, command, error)


def wants_json_log(tokens: Sequence[str]) -> bool:
    """Whether the options ask for a log of JSON lines; known before they are read, since that may fail."""
    return "--log-format=json" in tokens or ("--log-format", "json") in itertools.pairwise(tokens)


def _complain(tokens: Sequence[str], command: str, error: HeadwayError) -> int:
    """Tell an error: as the answer with --json, else on stderr; a log of JSON lines has it in any case."""
    said = f"headway {command}".rstrip() + f": {error}"
    if wants_json_log(tokens):
        from flows.progress.json_log import LOGGER

        LOGGER.error("%s", said, extra={"status": "failed"})
    if "--json" in tokens[1:]:  # before the command it is no option
        import json

        print(json.dumps({"error": error.facts, "exit_code": error.exit_code}))
    elif not wants_json_log(tokens):
        print(said, file=sys.stderr)
    return error.exit_code


def _version() -> str:
    from importlib import metadata

    return f"headway {metadata.version('headway')}"
