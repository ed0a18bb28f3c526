"""The sections of pipeline.yaml for production: when flows run, who is notified, where new spans land.

    schedule: {retrain: "0 5 2 * *", monitor: "0 7 * * *", timezone: America/New_York}
    alarms: {notify: [slack-webhook/ops], when: [failed, rejected, drifting]}
    arrival: {done: "data/{span}/_SUCCESS"}
    predictions: {path: "incoming/{span}.parquet", output: scored}

No stage depends on these sections, so changing them repeats no work.
"""

import re
from typing import Annotated, Any, Literal, Self, get_args
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, Field, field_validator, model_validator

from headway.config import Frozen, OneOrMore, refuse_idle
from headway.messages import did_you_mean
from headway.redaction import remember
from headway.sources.config import DATE_PARTS, SPAN

FLOWS = ("retrain", "backfill", "predict", "monitor")
"""The flows of a pipeline on a Prefect server; each has a deployment, which is named after the pipeline."""
Alarm = Literal["failed", "held", "rejected", "late", "drifting"]
ALARMS: tuple[Alarm, ...] = get_args(Alarm)
DATA_QUEUE, GPU_QUEUE = "data", "gpu"
"""The names of the work queues: of the flows, and of workers with a GPU."""
QueueName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_LONGEST = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_FIELDS: tuple[tuple[str, int, int, list[str]], ...] = (
    ("minute", 0, 59, []),
    ("hour", 0, 23, []),
    ("day of month", 1, 31, []),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 7, _DAYS),
)


def placeholders(path: str) -> set[str]:
    """Returns the placeholders in a path that stand for a span or a part of its date, such as {span} or {year}."""
    return {part for part in (SPAN, *DATE_PARTS) if part in path}


def check_cron(text: str) -> str:
    """Returns a valid cron expression of five fields, with single spaces between them.

    Raises:
        ValueError: a field is wrong (the error names it and its range), or the time never comes.
    """
    parts = text.split()
    if len(parts) != len(_FIELDS):
        raise ValueError(
            f"{text!r} is not a cron expression of five fields: minute, hour, day of month, month, day of week; "
            'for example "0 5 2 * *", the second of each month at 5:00'
        )
    values: dict[str, set[int]] = {name: set() for name, *_ in _FIELDS}
    for part, (name, low, high, words) in zip(parts, _FIELDS, strict=True):
        for item in part.lower().split(","):
            match = re.fullmatch(r"(?:\*|([a-z0-9]+)(?:-([a-z0-9]+))?)(?:/(\d+))?", item)
            ends = [] if match is None else [_number(end, low, words) for end in match.groups()[:2] if end]
            wrong = (
                match is None
                or (match[3] is not None and int(match[3]) == 0)
                or any(not low <= end <= high for end in ends)
            )
            if wrong or ends != sorted(ends):
                raise ValueError(
                    f"the {name} is {low} to {high}, with lists, ranges and steps of it: {item!r} is not (in {text!r})"
                )
            assert match is not None
            first, last = ends[0] if ends else low, ends[-1] if ends[1:] or (ends and not match[3]) else high
            values[name] |= set(range(first, last + 1, int(match[3] or 1)))
    days, months = values["day of month"], values["month"]
    if parts[4] == "*" and min(days) > max(_LONGEST[month - 1] for month in months):  # else days of the week come too
        raise ValueError(f"{text!r} never comes: no such month has a day {min(days)}")
    return " ".join(parts)


def _number(text: str, low: int, words: list[str]) -> int:
    """Returns the number that digits or a word such as jan stand for. Any other word gives -1, which no field allows."""
    if text.isdecimal():
        return int(text)
    return words.index(text) + low if text in words else -1


def check_timezone(name: str) -> str:
    """Returns the name of a time zone if it is valid.

    Raises:
        ValueError: there is no such zone.
    """
    try:
        return ZoneInfo(name).key
    except (KeyError, OSError, ValueError):  # unknown, a folder of zones, no path
        pass
    hint = did_you_mean(name, available_timezones(), "write one as in America/New_York")
    raise ValueError(f"{name!r} is not a time zone; {hint}")


Cron = Annotated[str, AfterValidator(check_cron)]
Zone = Annotated[str, AfterValidator(check_timezone)]


class ScheduleConfig(Frozen):
    """The times at which the flows of a pipeline run on a Prefect server: for each a cron expression of five fields
    (minute, hour, day of month, month, day of week). `headway deploy` puts them on the server."""

    retrain: Cron | None = Field(default=None, description="when the pipeline runs: a cron expression of five fields")
    predict: Cron | None = Field(default=None, description="when the champion predicts new spans, each once")
    monitor: Cron | None = Field(
        default=None, description="when the champion is checked for drift and decay on new spans"
    )
    timezone: Zone = Field(default="UTC", description="of every cron expression")

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, value: Any) -> Any:
        """Take a cron expression without a key as the one of retrain."""
        return {"retrain": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _zone_of_a_time(self) -> Self:
        if not any(map(self.of, FLOWS)):
            refuse_idle(self, ("timezone",), "with the cron expression of a flow")
        return self

    def of(self, flow: str) -> str | None:
        """Returns a flow's cron expression; None, as always for backfill: the flow runs only when somebody starts it."""
        cron: str | None = getattr(self, flow, None)
        return cron


class AlarmsConfig(Frozen):
    """The config of notifications by automations on the Prefect server: who is told of which events."""

    notify: Annotated[tuple[str, ...], OneOrMore] = Field(
        default=(), description="notification blocks of Prefect, as type/name: slack-webhook/ops, email-server/team"
    )
    when: Annotated[tuple[Alarm, ...], OneOrMore] = Field(
        default=ALARMS, description="failed, held, rejected, late, drifting; default: all"
    )
    late_minutes: int = Field(default=60, ge=1, description="a run that has not started so long after its time is late")

    @field_validator("notify")
    @classmethod
    def _blocks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not re.fullmatch(r"[a-z0-9-]+/[a-z0-9-]+", name):
                raise ValueError(
                    f"{name!r} is not type/name of a notification block, such as slack-webhook/ops "
                    "('prefect block ls' lists them)"
                )
        return tuple(dict.fromkeys(value))

    @model_validator(mode="after")
    def _somebody_is_told(self) -> Self:
        if not self.notify:
            refuse_idle(self, ("when", "late_minutes"), "with notify, which names whom to tell")
        elif "late" not in self.when:
            refuse_idle(self, ("late_minutes",), "with when: late")
        return self


def check_secrets(blocks: dict[str, str]) -> dict[str, str]:
    """Returns {environment variable: Secret block} if all names are valid.

    Raises:
        ValueError: a variable or a block cannot have such a name.
    """
    for name, block in blocks.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"{name!r} is not a name for an environment variable, such as DB_PASSWORD")
        if not re.fullmatch(r"[a-z0-9-]+", block):
            remember(name, block, secret=True)  # perhaps the secret itself: the error must not repeat it
            raise ValueError(
                f"{name}: this is not the name of a Secret block, which has a-z, 0-9 and -; the value itself does not "
                "stand in pipeline.yaml"
            )
    return blocks


Secrets = Annotated[dict[str, str], AfterValidator(check_secrets)]
"""{environment variable: the Secret block of the Prefect server that holds its value}"""


class ArrivalConfig(Frozen):
    """The sign by which a span that has landed is complete: a file, or a time without changes."""

    done: str | None = Field(
        default=None,
        min_length=1,
        description="a file that says that a span is complete, with the placeholders of source.path: data/{span}/_SUCCESS",
    )
    quiet_minutes: float = Field(
        default=10.0, ge=0, description="without done: so long a span's files have not changed"
    )

    @model_validator(mode="after")
    def _one_sign(self) -> Self:
        if self.done is not None:
            refuse_idle(self, ("quiet_minutes",), "without done")
        return self


class PredictionsConfig(Frozen):
    """The config of predicting spans: where their raw files land, and where the predictions go."""

    path: str | None = Field(
        default=None, min_length=1, description="with the placeholders of source.path; default: that"
    )
    output: str = Field(default="predictions", min_length=1, description="folder with a folder span=... for each span")
    columns: tuple[str, ...] | None = Field(
        default=None, description="written beside the predictions; default: the keys"
    )
