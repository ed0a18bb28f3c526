"""How a run ended, in words and a colour; whoever tells of a run says it from here.

ending = ending_of(record)
ending.headline, ending.tone        # "Version 2 is promoted: auc is better: it rose from 0.887 (version 1) to 0.8944.", "green"
"""

from collections.abc import Iterable, Iterator
from typing import Literal

from flows.records import RunRecord, State
from flows.tell.metric_tables import rows_of
from flows.tell.rendering.cells import cell
from flows.tell.rendering.parts import Finding, Part, Table
from headway.config import Frozen
from headway.evaluation.slices import named
from headway.evaluation.verdict import Check, MetricValue, Verdict, bound
from headway.messages import between, metric_text, sentence, signed, window_text

Tone = Literal["green", "amber", "red", "plain"]
_ENDS: dict[str, tuple[str, Tone, str]] = {
    State.PROMOTED: ("promoted", "green", "Version {version} is promoted"),
    State.NAMED: ("named", "green", "{alias} is version {version} now; the champion is as before"),
    State.ALREADY: (
        "already champion",
        "green",
        "Version {version} is the champion already; there is nothing to promote",
    ),
    State.KEPT: ("kept the champion", "plain", "The champion stays"),
    State.REJECTED: ("rejected", "red", "The candidate is rejected"),
    State.ROLLED_BACK: ("rejected", "red", "The candidate is rejected"),
    State.NOT_COMPARABLE: ("needs a person", "amber", "The candidate waits for a person"),
    State.INCOMPATIBLE: ("needs a person", "amber", "The candidate waits for a person"),
    State.HELD: ("needs a person", "amber", "The candidate waits for a person"),
    State.SHADOW: ("shadow", "amber", "The candidate is not promoted"),
    State.DONE: ("done", "plain", "The run ended with {last}, as it was asked to; nothing was judged"),
    State.RUNNING: ("running", "plain", "The run is going on"),
    State.FAILED: ("failed", "red", "The run failed"),
    State.OVERTAKEN: ("overtaken", "amber", "The run was overtaken"),
    State.CANCELLED: (
        "cancelled",
        "amber",
        "The run was stopped; what was done is kept, and the next run goes on from there",
    ),
    State.KILLED: (
        "killed",
        "amber",
        "The process of this run died; what was done is kept, and the next run goes on from there",
    ),
}
"""Word, tone and the beginning of the headline, by state."""
_JUDGED = frozenset({State.PROMOTED, State.KEPT, State.REJECTED, State.ROLLED_BACK, State.NOT_COMPARABLE})
_JUDGED |= {State.INCOMPATIBLE, State.HELD, State.SHADOW}
"""States whose headline goes on with the gate's first reason."""
_STAGES = {
    "ingest": "ingest",
    "statistics": "the statistics",
    "validate": "the validation",
    "train": "the training",
    "evaluate": "the evaluation",
    "gate": "the gate's verdict",
    "replay": "the export",
}


TOLD = {"headline", "word", "tone", "concerns"}
"""What events and logs have of an ending."""


class Ending(Frozen):
    """How a run ended, or how something else stands that a page is about."""

    format: int = 1
    word: str
    """The state in a word or two."""
    tone: Tone
    headline: str
    """One sentence."""
    concerns: tuple[str, ...] = ()
    """What a person should look at, whatever the verdict."""
    reasons: tuple[str, ...] = ()
    """The gate's, as sentences; the first is left out where the headline says all of it."""
    notes: tuple[str, ...] = ()
    """Its remarks that decided nothing."""
    checks: tuple[Check, ...] = ()
    values: tuple[MetricValue, ...] = ()
    """The metric that decides, of every model on the same rows."""
    error: str = ""
    """The whole error of a run that failed."""

    @property
    def label(self) -> str:
        """The word, and whether there are warnings."""
        return f"{self.word}, with warnings" if self.concerns else self.word

    @property
    def coloured(self) -> str:
        """The label, with the colour for who sees none."""
        return self.label if self.tone == "plain" else f"{self.label} ({self.tone})"

    @property
    def measured(self) -> str:
        """The values in words, with the rows that they are of; empty: there are none."""
        if not self.values:
            return ""
        first = self.values[0]
        rows = "" if first.rows is None else f" on {rows_of(first.rows, first.spans)}"
        return f"{first.name}{rows}: " + ", ".join(f"{value.of} {metric_text(value.value)}" for value in self.values)

    @property
    def said(self) -> list[str]:
        """Reasons, values and notes, in the order in which they are told."""
        return [*self.reasons, *([self.measured] if self.values else []), *self.notes]

    @property
    def line(self) -> str:
        """The headline and the concerns in one line."""
        return " ".join([self.headline, *(f"Warning: {sentence(concern)}" for concern in self.concerns)])


def ending_of(record: RunRecord) -> Ending:
    """How a run ended."""
    state, verdict = record.state, record.verdict
    word, tone, begins = _ENDS.get(state, (str(state), "amber", "The candidate is not promoted"))
    last = _STAGES.get(str(record.last), str(record.last))
    headline = begins.format(version=record.version, alias=record.alias, last=last)
    reasons = verdict.reasons if verdict else ()
    error = record.error or ""
    if state in (State.FAILED, State.OVERTAKEN):
        headline = f"{headline}: {_first_line(error)}"
    elif state == State.DONE and verdict is not None:
        word = "would be promoted" if verdict.promote else "would not be promoted"
        headline = f"The candidate {word}; this run ended before a promotion"
    elif (state in _JUDGED or state not in _ENDS) and reasons:
        by_force = " by force, against" if reasons[0].overruled else ""
        headline = f"{headline}{by_force}: {reasons[0].summary}"
        if not (reasons[0].detail or reasons[0].fix):
            reasons = reasons[1:]
    concerns = (*(verdict.concerns if verdict else ()), *record.warnings)
    if concerns and tone in ("green", "plain") and not record.going_on:
        tone = "amber"
    return Ending(
        word=word,
        tone=tone,
        headline=sentence(headline),
        concerns=concerns,
        reasons=tuple(map(str, reasons)),
        notes=tuple(_notes(verdict)) if verdict else (),
        checks=verdict.checks if verdict else (),
        values=tuple(verdict.values(verdict.primary)) if verdict else (),
        error=error,
    )


def _first_line(error: str) -> str:
    return next((line.rstrip(":") for line in error.splitlines() if line.strip()), "no reason is known")


def _notes(verdict: Verdict) -> Iterator[str]:
    """The remarks that are no concern, and the checks that no remark is about."""
    yield from (str(note) for note in (*verdict.notes, *verdict.alarms) if not note.concern)
    said = {remark.check for remark in (*verdict.reasons, *verdict.notes, *verdict.alarms)}
    for check in verdict.checks:
        if check.key not in said:
            row = {name: cell(value) for name, value in _row(check).items() if name not in ("check", "outcome")}
            numbers = ", ".join(f"{name} {text}" for name, text in row.items() if text)
            yield f"{check.name}: {check.outcome}" + (f" ({numbers})" if numbers else "")


def ending_part(ending: Ending) -> Part:
    """How a run ended, as a part that stands alone."""
    return Part(
        f"Verdict: {ending.coloured}",
        [ending.headline],
        findings=[Finding("warning", concern) for concern in ending.concerns],
        points=ending.said,
        tables=[checks_table(ending.checks)] if ending.checks else [],
        texts=[("Error", ending.error)] if ending.error else [],
    )


def judged_on(verdict: Verdict) -> list[str]:
    """Which rows all values of a verdict are of, where that is known."""
    return [f"Judged on the eval rows of {window_text(verdict.spans)}."] if verdict.spans else []


def checks_table(checks: Iterable[Check]) -> Table:
    """Everything that the gate checked, a row each."""
    return Table("Checks of the gate", [_row(check) for check in checks], whole=("outcome",))


def _row(check: Check) -> dict[str, object]:
    return {
        "check": check.name,
        "metric": check.metric,
        "on": None if check.slice is None else named(check.slice, check.slice_value),
        "candidate": check.value,
        "against": check.against,
        "there": check.before,
        "change": None if check.change is None else signed(check.change),
        "interval": None if check.interval is None else between(check.interval, check.confidence),
        "limit": bound(check),
        "rows": check.rows,
        "outcome": check.outcome,
    }
