"""Two models on the same rows: the table of their metrics, and how a version stands to the champion that it met.

    change_between(version, champion).sentence     # None: no gate compared the two

A metric of one version and of another on rows of its own do not compare: wherever such a level stands, `level` names the spans
of its rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from flows.records import RunRecord
from flows.report.model import Table
from flows.report.plot import BAD, FIRST, GOOD, Mark, interval_strips, one_line
from headway.evaluation.slices import named
from headway.evaluation.verdict import Check
from headway.messages import between, counted, ends, metric_text, metrics_line, of_window, signed
from headway.registry.registry import Registry, Version
from headway.storage.store import Store
from headway.tasks.table import direction

UNCLEAR: Literal["no clear difference"] = "no clear difference"
Outcome = Literal["better", "worse", "no clear difference", ""]
COLOURS = {"better": GOOD, "worse": BAD}
"""Of an outcome that is clear."""


def outcome_of(check: Check) -> Outcome:
    """Whether the second of two models is better: the interval of the change lies wholly on one side of 0."""
    if check.interval is None:
        return ""
    low, high = check.interval
    if low <= 0 <= high:
        return UNCLEAR
    return "better" if (low > 0) == (direction(str(check.metric), check.better) > 0) else "worse"


def change_text(check: Check) -> str:
    """A change with its sign and its interval; empty where there is none."""
    if check.change is None:
        return ""
    return signed(check.change) + (f" ({ends(check.interval, signed)})" if check.interval else "")


def paired_table(title: str, checks: Sequence[Check], first: str, second: str, note: str = "") -> Table:
    """A row per check: the values of both models, which are of the same rows, and their difference."""
    known = [check.interval or (check.change or 0.0,) * 2 for check in checks]
    marks: list[Mark | None] = [
        None if check.change is None else (low, check.change, high, COLOURS.get(outcome_of(check), FIRST))
        for check, (low, high) in zip(checks, known, strict=True)
    ]
    drawn = interval_strips(marks) if any(check.interval for check in checks) else [None] * len(checks)
    rows = [
        {
            "metric": check.metric if check.slice is None else None,
            "slice": None if check.slice is None else one_line(named(check.slice, check.slice_value), 60),
            "rows": None if check.slice is None else check.rows,
            first: None if check.before is None else metric_text(check.before),
            second: None if check.value is None else metric_text(check.value),
            "difference": change_text(check),
            "picture": picture,
            f"{second} is": outcome_of(check),
        }
        for check, picture in zip(checks, drawn, strict=True)
    ]
    return Table(title, rows, note, whole=("difference",))


# --- versions


@dataclass(frozen=True)
class VersionChange:
    """A version beside the champion of its time on the same rows: the eval rows of the run that made it, which scored both."""

    version: int
    against: int
    spans: tuple[str, ...]
    check: Check
    """By the metric that decides; its change is version - against."""

    @property
    def text(self) -> str:
        """The text of a cell: "auc +0.002 (+0.001 to +0.003) against v3 on 2013-12"."""
        return f"{self.check.metric} {change_text(self.check)} against v{self.against}{_on(self.spans)}"

    @property
    def sentence(self) -> str:
        check, one, other = self.check, f"version {self.version}", f"version {self.against}"
        outcome = {
            "better": f"{one} is better than {other}",
            "worse": f"{one} is worse than {other}",
            UNCLEAR: f"there is no clear difference between {one} and {other}",
        }.get(outcome_of(check), f"{one} differs from {other}, by how much beyond chance is not known")
        interval = f" ({between(check.interval, check.confidence)})" if check.interval else ""
        rows = rows_in_words(self.spans)
        return f"On the same rows, {rows}, {outcome}: {check.metric} {signed(check.change)}{interval}."

    @property
    def turned(self) -> "VersionChange":
        """The other one against this one."""
        check = self.check
        interval = None if check.interval is None else (-check.interval[1], -check.interval[0])
        change = None if check.change is None else -check.change
        update = {"value": check.before, "before": check.value, "change": change, "interval": interval}
        return VersionChange(self.against, self.version, self.spans, check.model_copy(update=update))


def change_between(version: Version, against: Version) -> VersionChange | None:
    """Two versions on rows that the run of one of them scored with both; None where no gate compared them."""
    for one, other in ((version, against), (against, version)):
        if (found := change_since(one)) is not None and found.against == other.number:
            return found if one is version else found.turned
    return None


def change_since(version: Version) -> VersionChange | None:
    """A version against the champion of its time; None: its gate did not compare the two."""
    compared = version.facts.get("compared")
    if not isinstance(compared, dict):
        return None
    check = Check.model_validate(compared["check"])
    return VersionChange(version.number, int(compared["version"]), eval_spans(version), check)


def own_levels(version: Version) -> str:
    """The most important metrics of a version, with the spans of its rows."""
    line = metrics_line(metrics_of(version))
    return line + _on(eval_spans(version)) if line else ""


def judged_spans(store: Store, record: RunRecord) -> tuple[str, ...]:
    """The spans whose rows a run judged its candidate on."""
    if record.verdict is not None and record.verdict.spans:
        return record.verdict.spans
    step = record.step("splits")
    manifest = store.find(step.stage, step.fingerprint) if step is not None else None
    return spans_in(manifest.key.get("inputs", {}).get("parts", {}).get("eval") if manifest is not None else None)


def rows_in_words(spans: Sequence[str]) -> str:
    """The eval rows of spans, in words."""
    return f"the eval rows{of_window(spans)}" if spans else "the eval rows of its run"


def rows_of(rows: int, spans: Sequence[str], split: str = "eval") -> str:
    """Which rows metrics are of, as far as it is known."""
    return f"{counted(rows, f'{split} row')}{of_window(spans)}"


def _on(spans: Sequence[str]) -> str:
    return of_window(spans, "on") if spans else " on its own eval rows"


def names_of(registry: Registry, number: int) -> tuple[str, ...]:
    """What points at a version: champion, previous, aliases."""
    places = {"champion": registry.decided_against(), "previous": registry.previous(), **registry.aliases()}
    return tuple(name for name, at in places.items() if at == number)


def eval_spans(version: Version) -> tuple[str, ...]:
    """The spans whose rows a version was judged on."""
    return spans_in(version.facts.get("eval_parts"))


def spans_in(parts: object) -> tuple[str, ...]:
    """The spans of the parts, (span, split), that a version keeps."""
    found = [part[0] for part in parts if isinstance(part, list) and part] if isinstance(parts, list) else []
    return tuple(dict.fromkeys(map(str, found)))


def metrics_of(version: Version) -> dict[str, float]:
    """Return the metrics of a version on the eval rows of its run."""
    metrics = version.facts.get("metrics")
    found = metrics if isinstance(metrics, dict) else {}
    return {name: value for name, value in found.items() if isinstance(value, int | float)}
