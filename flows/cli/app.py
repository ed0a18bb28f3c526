"""The command line, `headway COMMAND`; `EPILOG` has the exit codes. Slow imports wait until a command needs them.

A new command needs a line in `COMMANDS`, and a function in the module of its subject.
"""

from __future__ import annotations

import contextlib
import gc
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
        "init": "data: Looks at data and writes a pipeline.yaml for it.",
        "run": "runs: Takes raw files to a promoted model, and reuses what is done.",
        "plan": "runs: Lists the steps that a run would do, and says why.",
        "promote": "models: Makes a version the champion, or points an alias at it.",
        "rollback": "models: Makes an earlier version the champion again.",
        "predict": "models: Predicts the rows of raw files, or of each new span.",
        "serve": "models: Answers HTTP requests with the champion's predictions.",
        "tune": "operations: Tries settings, and writes the best to tuned.yaml.",
    },
    "Automate": {
        "backfill": "operations: Trains and judges a model for each of several past windows.",
        "monitor": "operations: Checks new spans for drift, and the champion on new labels.",
        "deploy": "operations: Puts pipelines on a Prefect server, or removes them from it.",
    },
    "Inspect": {
        "models": "models: Lists the versions of the model, its champion and its aliases.",
        "compare": "models: Compares two versions or runs, as text and as a page.",
        "runs": "runs: Lists the runs of the store, newest first.",
        "show": "runs: Shows what a run did, why, and where its outputs lie.",
        "report": "runs: Prints the path of a run's report, which is an HTML page.",
        "quarantine": "data: Shows the rows that the latest run rejected, and says why.",
        "export-rows": "data: Writes the rows of a window for other tools.",
    },
    "Maintain": {
        "verify": "store: Reads every byte of the store and compares checksums.",
        "clean": "store: Lists what the store can do without, and deletes it with --yes.",
        "schema": "data: Prints the schema of pipeline.yaml, or proposes one of the data.",
        "doctor": "store: Checks the packages, the devices, the disk and the store.",
    },
}
"""{group: {command: "MODULE: what the command does"}}; flows.cli.MODULE has the command's function."""
NOT_TRAINING = ("ingest", "statistics", "validate", "transform")
"""The stages of `headway run --to` before training."""


def application() -> App:
    """Returns the application with every command; a command's module is imported when it is called."""
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
            module, _, sentence = entry.partition(": ")
            app.command(f"flows.cli.{module}:{name.replace('-', '_')}", name=name, help=sentence, group=group)
    app.register_install_completion_command()
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # else pydantic looks through every package that is installed for its plugins
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if arguments is None:
        # threads of OpenBLAS wait for each other in a loop, and the last digits of a sum depend on their number
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with early_start.early_process() if arguments is None and surely_trains(sys.argv[1:]) else contextlib.nullcontext():
        code = _run(arguments)
    if arguments is None:
        gc.freeze()  # at its end Python would look through all that is imported, for a third of a second
    return code


def surely_trains(tokens: Sequence[str]) -> bool:
    """Returns whether it is certain that a command will train: it is `run`, and the default store has no data yet.

    False if that is not clear at once, such as with a store elsewhere; then TensorFlow starts later."""
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
    from headway.process import mark_own_process, quiet_libraries
    from headway.redaction import protect

    protect()

    if arguments is None:  # this process is ours
        mark_own_process()
        quiet_libraries()
    app = application()
    if wants_json_log(own_tokens):
        from flows.pipeline.json_log import log_as_json

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
    """Returns whether the command line has --log-format json; it is not parsed for this, since parsing may fail."""
    return "--log-format=json" in tokens or ("--log-format", "json") in itertools.pairwise(tokens)


def _complain(tokens: Sequence[str], command: str, error: HeadwayError) -> int:
    """Prints an error (to stdout as JSON with --json, else to stderr or the JSON log), and returns its exit code."""
    said = f"headway {command}".rstrip() + f": {error}"
    if wants_json_log(tokens):
        from flows.pipeline.json_log import LOGGER

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
