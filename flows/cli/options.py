"""What the commands share: their options as typed parameters, and functions to load a pipeline, run it and answer.

    def train(pipeline: PipelinePath = ".", /, *, options: RunOptions = RunOptions()) -> int: ...

A command is a function in the module of its subject. Positional parameters come before the `/`, its own options after
the `*`, and one of the dataclasses below last. Answers go to stdout, with --json as one JSON value. Slow imports are
made in the functions that need them, so that a help page is quick.
"""

import contextlib
import json
import math
import signal
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from headway.errors import ConfigError, StoreError
from headway.redaction import redact, redacted

if TYPE_CHECKING:
    from flows.config.pipeline import LoadedPipeline
    from flows.pipeline.context import Context
    from flows.pipeline.listeners import Reporter
    from flows.records import RunRecord
    from headway.storage.store import Store


# --- types of values


def _whole(least: int | None) -> Any:
    def convert(_: Any, tokens: Any) -> int:
        text = tokens[0].value
        if text.lstrip("-").isdecimal() and (least is None or least <= int(text)):
            return int(text)
        bounds = "" if least is None else f" of {least} or more"
        raise ValueError(f"{text!r} is not a whole number{bounds}")

    return convert


def _number(least: float) -> Any:
    def convert(_: Any, tokens: Any) -> float:
        text = tokens[0].value
        with contextlib.suppress(ValueError):
            if least <= (value := float(text)) < math.inf:
                return value
        raise ValueError(f"{text!r} is not a number of {least:g} or more")

    return convert


def _names(_: Any, tokens: Any) -> tuple[str, ...]:
    return tuple(name for name in tokens[0].value.split(",") if name)


def _window(_: Any, tokens: Any) -> int | str:
    """Returns the value of --window: a number of spans, or text such as 30d or all, which is checked later."""
    return int(tokens[0].value) if tokens[0].value.isdecimal() else tokens[0].value


def _common(text: str, **more: Any) -> Parameter:
    return Parameter(group="Common", help=text, show_default=False, **more)


def _of_window(text: str, **more: Any) -> Parameter:
    return Parameter(group="Window", help=text, show_default=False, **more)


PipelinePath = Annotated[
    str, Parameter(help="Names pipeline.yaml or its folder (default: this folder).", show_default=False)
]
Whole = Annotated[int, Parameter(converter=_whole(None), metavar="N")]
Count = Annotated[int, Parameter(converter=_whole(0), metavar="N")]
Positive = Annotated[int, Parameter(converter=_whole(1), metavar="N")]
Limit = Annotated[float, Parameter(converter=_number(0))]
Columns = Annotated[
    tuple[str, ...] | None, Parameter(converter=_names, consume_multiple=False, n_tokens=1, metavar="A,B")
]
Seconds = Annotated[float, Parameter(metavar="SECONDS")]
Pause = Annotated[float, Parameter(converter=_number(0.01), metavar="SECONDS")]
WindowSize = Annotated[int | str | None, Parameter(converter=_window, metavar="N|TIME")]
_LOG = "Chooses what stderr gets: text, or a JSON object per line (default: text)."
_SET = "Sets a key, as in training.epochs=3, or the keys of a YAML file, as in @tuned.yaml; it may be repeated."
_SIZE = "Sets the number of spans, or their time: 30d, 12m; or all (default: window of pipeline.yaml, else all)."
_SEED = "Sets the random seed (default: the pipeline's)."
_WAIT = "Says how long to wait while another run of this pipeline goes on (default: not at all)."


# --- groups of options


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class JsonOption:
    """The option --json, which every command has."""

    json: Annotated[bool, _common("Prints the answer as one JSON document and nothing else.")] = False


@dataclass(frozen=True, kw_only=True)
class Options(JsonOption):
    """The options of a command on a pipeline."""

    set: Annotated[tuple[str, ...], _common(_SET, metavar="KEY=VALUE")] = ()


@dataclass(frozen=True, kw_only=True)
class ProgressOptions(Options):
    """The options of a command that reports its progress."""

    quiet: Annotated[bool, _common("Prints the answer without progress.")] = False
    verbose: Annotated[bool, _common("Prints every line of progress, and all about a run.")] = False
    log_format: Annotated[Literal["text", "json"] | None, _common(_LOG)] = None


@dataclass(frozen=True, kw_only=True)
class StageOptions(ProgressOptions):
    """The options of a command that runs stages."""

    wait: Annotated[Seconds, _common(_WAIT)] = 0.0


@dataclass(frozen=True, kw_only=True)
class SizeOptions(Options):
    """The options of a command that sets the size of its windows, but not their last span."""

    window: Annotated[WindowSize, _of_window(_SIZE)] = None
    seed: Annotated[Whole | None, _of_window(_SEED)] = None


@dataclass(frozen=True, kw_only=True)
class WindowOptions(SizeOptions):
    """The options of a command on a window of spans."""

    until: Annotated[str, Parameter(group="Window", metavar="SPAN", help="Names the last span of the window.")] = (
        "latest"
    )


@dataclass(frozen=True, kw_only=True)
class RunOptions(WindowOptions, StageOptions):
    """The options of a command that runs stages on a window."""


# --- what commands do with them


def overrides_of(options: Options) -> dict[str, object]:
    """Returns {key: value} of --set. For --set @FILE, a key in a section of the file becomes section.key."""
    from headway.config import read_value, read_yaml

    overrides: dict[str, object] = {}
    for item in options.set:
        key, equals, value = item.partition("=")
        path = Path(item[1:])
        if not item.startswith("@"):
            if not equals or not key:
                raise ConfigError(
                    f"{item!r} is not KEY=VALUE", where="--set", fix="for example --set training.epochs=3"
                )
            overrides[key] = read_value(value)
            continue
        if not path.is_file():
            fix = "name a YAML file with keys of pipeline.yaml, or write --set KEY=VALUE"
            raise ConfigError(f"there is no file {path}", where=f"--set {item}", fix=fix)
        for section, given in read_yaml(path).items():
            keys = {f"{section}.{name}": setting for name, setting in given.items()} if isinstance(given, dict) else {}
            overrides |= keys or {section: given}
    return overrides


def load_pipeline(pipeline: str, options: Options) -> "LoadedPipeline":
    """Returns the pipeline with the values that --set overrides."""
    from flows.config.pipeline import read_pipeline

    return read_pipeline(Path(pipeline), overrides_of(options))


def context_of(
    pipeline: str, options: Options, *, last: str | None = None, force: bool = False, alias: str | None = None
) -> "Context":
    """Returns the context of a command's run: the pipeline over the window in `options`, or over its own window."""
    from flows.pipeline.context import Context

    loaded = load_pipeline(pipeline, options)
    size = options if isinstance(options, SizeOptions) else SizeOptions()
    until = options.until if isinstance(options, WindowOptions) else "latest"
    return Context(loaded, loaded.open_store(), size.window, until, size.seed, force, last, alias)


def store_of(pipeline: str, options: Options) -> tuple["LoadedPipeline", "Store"]:
    """Returns the pipeline and its store; StoreError if no run has created the store yet."""
    loaded = load_pipeline(pipeline, options)
    store = loaded.open_store()
    if not store.exists():
        raise StoreError("there is no store yet", where=store.name, fix="headway run makes one")
    return loaded, store


def names_and_pipeline(names: Sequence[str], pipeline: str, default: str = "") -> tuple[list[str], str]:
    """Returns the names of versions or runs, and the pipeline, which may stand before the names or after them.

    Args:
        default: the name to take if only a pipeline is given.

    Raises:
        ConfigError: the first of several names is a pipeline, so that a name is missing.
    """
    first = Path(names[0])
    if names[0].isdecimal() or not (first.is_file() or (first / "pipeline.yaml").is_file()):
        return list(names), pipeline
    if len(names) > 1 and pipeline == ".":
        problem = f"{names[0]} is a pipeline, and {len(names)} versions are needed beside it"
        raise ConfigError(problem, fix="name them by number, champion, previous or an alias")
    return [*names[1:], default if pipeline == "." else pipeline], names[0]


def answer(options: JsonOption, value: object, text: str, exit_code: int = 0) -> int:
    """Prints a command's answer and returns the exit code: with --json `value` as JSON, else `text`."""
    if options.json:
        from pydantic import TypeAdapter

        plain = TypeAdapter(object).dump_python(value, mode="json")
        print(json.dumps(redacted(plain, secrets_only=True), indent=1))
    else:
        print(redact(text))
    return exit_code


@contextlib.contextmanager
def reporting(options: ProgressOptions) -> Iterator["Reporter"]:
    """Yields the reporter that the options ask for; during the block, Ctrl-C and SIGTERM ask the steps to stop."""
    from flows.pipeline.listeners import stop_on_signals

    with _reporter(options) as report:
        said = "stopping: saving what is done (again to stop at once)"
        with stop_on_signals(report.stop, signal.SIGINT, signal.SIGTERM, say=lambda: report.note(said)):
            yield report


def _reporter(options: ProgressOptions) -> AbstractContextManager["Reporter"]:
    if options.log_format == "json":
        from flows.pipeline.json_log import JsonLog
        from flows.pipeline.listeners import Reporter

        return contextlib.nullcontext(Reporter([JsonLog()]))
    from flows.pipeline.listeners import reporter

    return reporter(quiet=options.json or options.quiet, verbose=options.verbose)


def execute(options: StageOptions, context: "Context") -> "RunRecord":
    """Runs a pipeline, reports its progress, and returns the run's record."""
    from flows.pipeline.run import execute as execute_run

    with reporting(options) as report:
        return execute_run(context, report, wait_seconds=options.wait)


def summary_text(record: "RunRecord", context: "Context", *, verbose: bool = False) -> str:
    """Returns the summary of a finished run as text for a terminal, with paths of its model or last output."""
    from flows.report.text import summary

    places: list[tuple[str, object]] = []
    if verbose and record.state == "promoted" and record.version is not None:
        places.append(("model", context.store.shown(context.registry.version(record.version).saved_model)))
        places.append(("serving", context.store.shown(context.registry.serving / str(record.serving))))
    if context.last is not None and record.stages:
        last = record.step("export") or record.stages[-1]
        places.append(("output", context.store.shown(context.store.output(last.stage, last.fingerprint))))
    return summary(record, places, verbose=verbose)
