"""`headway knobs`: shows and changes the settings that a running training rereads at every step."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from flows.cli.commands import answer, load_pipeline
from flows.cli.options import Options, PipelinePath
from headway.errors import ConfigError

LET_GO, RATE = "schedule", "learning_rate"


def knobs(
    pipeline: PipelinePath = ".",
    /,
    *values: Annotated[str, Parameter(name="NAME=VALUE")],
    options: Options = Options(),
) -> int:
    """Show the knobs of the pipeline's training, or write values to the control file that a running training reads.

    Args:
        values: change a knob of a running training; NAME=schedule restores the schedule.
    """
    from flows.tell.rendering.cells import text_table
    from tfcore.train.settings.control_file import ControlFile
    from tfcore.train.settings.knob_values import MEANINGS, check

    if "=" in pipeline:  # the first value, with no pipeline before it
        values, pipeline = (pipeline, *values), "."
    loaded = load_pipeline(pipeline, options)
    file = ControlFile(loaded.control_file)
    schedules = loaded.pipeline.training.all_knobs(loaded.pipeline.model.dropout)
    changes = dict(_value(item) for item in values)
    for name, value in changes.items():
        check(name, value, schedules)
    if changes:
        file.write(changes)
    by_hand = file.read()
    rows, table = [], []
    for name, schedule in schedules.items():
        auto = name == RATE and RATE not in loaded.pipeline.training.model_fields_set
        set_to = {} if auto else schedule.model_dump(mode="json", exclude_defaults=True)
        set_to = {"name": "auto" if auto else schedule.name} | set_to
        value, meaning = by_hand.get(name), MEANINGS.get(name, "the model's own")
        rows.append({"knob": name, "pipeline": set_to, "by_hand": value, "meaning": meaning})
        shown = None if value is None else str(value)  # every digit
        table.append({"knob": name, "pipeline": _short(set_to), "by hand": shown, "is": meaning})
    last = (
        "a running training applies this within a second and reports it"
        if changes
        else f"headway knobs {loaded.file.name} NAME=VALUE changes one while a training runs"
    )
    return answer(options, {"file": str(file.path), "knobs": rows}, f"{text_table(table)}\n{last}")


def _value(item: str) -> tuple[str, Any]:
    name, equals, text = item.partition("=")
    if not equals or not name:
        raise ConfigError(f"{item!r} is not NAME=VALUE", where="headway knobs", fix="for example learning_rate=0.0001")
    try:
        return name, None if text == LET_GO else float(text)
    except ValueError:
        raise ConfigError(f"{text!r} is not a number", where=f"knob {name!r}", fix=f"for example {name}=0.1") from None


def _short(schedule: dict[str, object]) -> str:
    if schedule["name"] == "auto":
        return "chosen by the train rows: headway plan"
    settings = {key: value for key, value in schedule.items() if key != "name"}
    if schedule["name"] == "constant" and list(settings) in ([], ["initial"]):
        return f"{settings.get('initial', 0.001):g}"
    return " ".join([str(schedule["name"]), *(f"{key}={value}" for key, value in settings.items())])
