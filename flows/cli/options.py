"""Options that several commands share, as typed parameters of the command line.

def train(pipeline: PipelinePath = ".", /, *, options: RunOptions = RunOptions()) -> int: ...

A command is one function in the module of its subject: positional parameters come before the `/`, its own options after
the `*`, and one of these dataclasses last. `flows.cli.app` registers it. Nothing heavy is imported here.
"""

import contextlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter


def _whole(least: int | None) -> Any:
    def convert(_: Any, tokens: Any) -> int:
        text = tokens[0].value
        if text.lstrip("-").isdecimal() and (least is None or least <= int(text)):
            return int(text)
        bounds = "" if least is None else f" of {least} or more"
        raise ValueError(f"{text!r} is not a whole number{bounds}")

    return convert


def _number(least: float, most: float = math.inf) -> Any:
    def convert(_: Any, tokens: Any) -> float:
        text = tokens[0].value
        with contextlib.suppress(ValueError):
            if least <= (value := float(text)) <= most and value != math.inf:
                return value
        kind = f"a number of {least:g} or more" if most == math.inf else f"a share from {least:g} to {most:g}"
        raise ValueError(f"{text!r} is not {kind}")

    return convert


def _names(_: Any, tokens: Any) -> tuple[str, ...]:
    return tuple(name for name in tokens[0].value.split(",") if name)


def _window(_: Any, tokens: Any) -> int | str:
    """A number of spans, or a time such as 30d, which `flows.pipeline` checks."""
    return int(tokens[0].value) if tokens[0].value.isdecimal() else tokens[0].value


def _common(told: str, **more: Any) -> Parameter:
    return Parameter(group="Common", help=told, show_default=False, **more)


def _of_window(told: str, **more: Any) -> Parameter:
    return Parameter(group="Window", help=told, show_default=False, **more)


PipelinePath = Annotated[str, Parameter(help="pipeline.yaml, or its folder (default: this folder)", show_default=False)]
Whole = Annotated[int, Parameter(converter=_whole(None), metavar="N")]
Count = Annotated[int, Parameter(converter=_whole(0), metavar="N")]
Positive = Annotated[int, Parameter(converter=_whole(1), metavar="N")]
Limit = Annotated[float, Parameter(converter=_number(0))]
Share = Annotated[float, Parameter(converter=_number(0, 1), metavar="SHARE")]
Columns = Annotated[
    tuple[str, ...] | None, Parameter(converter=_names, consume_multiple=False, n_tokens=1, metavar="A,B")
]
Seconds = Annotated[float, Parameter(metavar="SECONDS")]
Pause = Annotated[float, Parameter(converter=_number(0.01), metavar="SECONDS")]
ModelName = Annotated[str, Parameter(name=("--model", "--version"))]
SomeFile = Annotated[Path | None, Parameter(metavar="FILE")]


WindowSize = Annotated[int | str | None, Parameter(converter=_window, metavar="N|TIME")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class JsonOption:
    """The options of every command."""

    json: Annotated[bool, _common("print the answer as one JSON document and nothing else")] = False
    quiet: Annotated[bool, _common("print the answer without progress")] = False
    verbose: Annotated[bool, _common("print every line of progress, and all about a run")] = False
    log_format: Annotated[
        Literal["text", "json"] | None,
        _common("what stderr gets: text, or a JSON object per line (default: text)"),
    ] = None


_SET = "set a key, as in training.epochs=3, or the keys of a YAML file, as in @tuned.yaml (may be repeated)"
_SIZE = "the number of spans, or a length of time: 30d, 12m; or all (default: window of pipeline.yaml, else all)"
_WAIT = "how long to wait while another run of this pipeline goes on (default: not at all)"


@dataclass(frozen=True, kw_only=True)
class Options(JsonOption):
    """Options of a command on a pipeline."""

    set: Annotated[tuple[str, ...], _common(_SET, metavar="KEY=VALUE")] = ()


@dataclass(frozen=True, kw_only=True)
class WindowOptions(Options):
    """Options of a command on a window of spans."""

    window: Annotated[WindowSize, _of_window(_SIZE)] = None
    until: Annotated[str, Parameter(group="Window", metavar="SPAN", help="the last span of the window")] = "latest"
    seed: Annotated[Whole | None, _of_window("the random seed (default: the pipeline's)")] = None


@dataclass(frozen=True, kw_only=True)
class RunOptions(WindowOptions):
    """Options of a command that runs stages."""

    wait: Annotated[Seconds, _common(_WAIT)] = 0.0


@dataclass(frozen=True, kw_only=True)
class NewestOptions(RunOptions):
    """Options of a command that chooses the last span itself: --until is refused with a sentence, and no help names it."""

    until: Annotated[str, Parameter(group="Window", metavar="SPAN", show=False)] = "latest"


_LAST_RUNS = "(default: the last run's)"


@dataclass(frozen=True, kw_only=True)
class CandidateOptions(RunOptions):
    """Options of a command on the candidate of an earlier run, whose window and seed are those of that run."""

    window: Annotated[WindowSize, _of_window(f"without --to: as --window of headway run {_LAST_RUNS}")] = None
    until: Annotated[str, _of_window(f"without --to: the last span of the window {_LAST_RUNS}", metavar="SPAN")] = (
        "latest"
    )
    seed: Annotated[Whole | None, _of_window(f"without --to: the random seed {_LAST_RUNS}")] = None
