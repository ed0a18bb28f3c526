"""How a run ended, in words and a colour; whoever tells of a run says it from here.

ending = ending_of(record)
ending.headline, ending.tone        # "Version 2 is promoted: auc is better: it rose from 0.887 (version 1) to 0.8944.", "green"
"""

import re
from collections.abc import Sequence
from typing import Literal

from flows.records import NO_VERDICT, ChampionSummary, RunRecord, State
from flows.report.checks import Explanation, explain, level
from flows.report.model import Finding, Section, Table, cell
from flows.report.versions import UNCLEAR, change_text, outcome_of, rows_of
from headway.config import Frozen
from headway.evaluation.slices import named
from headway.evaluation.verdict import (
    ANCHOR,
    BEYOND,
    CANNOT_TELL,
    CHAMPION,
    DECAY,
    KEPT,
    NEEDS_PERSON,
    NOT_COMPARED,
    THRESHOLD,
    WITHIN,
    Check,
    Verdict,
)
from headway.messages import between, counted, listed, metric_text, metrics_line, number, sentence, signed, some
from headway.metrics.base import Better
from headway.metrics.meanings import meaning

_MOST_CHECKS, _MOST_CHANGES = 3, 4
Tone = Literal["green", "amber", "red", "plain"]
_RESUMED = "what was done is kept, and the next run goes on from there"
_ENDS: dict[str, tuple[str, Tone, str]] = {
    State.PROMOTED: ("promoted", "green", "Version {version} is promoted"),
    State.NAMED: ("named", "green", "{alias} is version {version} now; the champion is as before"),
    State.ALREADY: (
        "already champion",
        "green",
        "Version {version} is the champion already; there is nothing to promote",
    ),
    State.KEPT: ("kept", "plain", "The champion stays"),
    State.REJECTED: ("rejected", "red", "The candidate is rejected"),
    State.NEEDS_PERSON: ("needs a person", "amber", "The candidate waits for a person"),
    State.DONE: ("done", "plain", "The run ended after {last}, as it was asked to; nothing was judged"),
    State.RUNNING: ("running", "plain", "The run is going on"),
    State.FAILED: ("failed", "red", "The run failed"),
    State.OVERTAKEN: ("overtaken", "amber", "The run was overtaken"),
    State.CANCELLED: ("cancelled", "amber", f"The run was stopped; {_RESUMED}"),
    State.KILLED: ("killed", "amber", "The process of this run died{at}; " + _RESUMED),
}
"""Word, tone and the beginning of the headline, by state."""


def word_of(state: str) -> str:
    """The word for a run's state, as people read it."""
    return _ENDS[state][0] if state in _ENDS else state


class RunSummary(Frozen):
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
    """The gate's, as sentences; those that the headline and the checks say are left out."""
    fixes: tuple[str, ...] = ()
    """What would change the verdict."""
    stands: str = ""
    """The version that is in production after a candidate was not promoted."""
    since: str = ""
    """What changed since the champion."""
    notes: tuple[str, ...] = ()
    """The gate's remarks that decided nothing and that no check says."""
    checks: tuple[Check, ...] = ()
    """What speaks against the candidate first."""
    headlined: tuple[str, ...] = ()
    """The keys of the checks that the headline and the concerns tell: a first model beside the baselines."""
    judged_on: str = ""
    """The rows that all values of the checks are of."""
    meanings: str = ""
    """What the metrics of the headline and the first checks are."""
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
    def said(self) -> list[str]:
        """Returns the sentences that are told beside the headline and the checks."""
        notes = () if self.checks else self.notes
        return [*filter(None, [self.stands, self.since, *self.reasons, *self.fixes, *notes])]

    def tables(self, *, brief: bool = False, narrow: bool = False) -> list[Table]:
        """The first checks, and a folded table of the others; empty of none.

        Args:
            brief: only the first ones that the headline does not tell, without intervals, and how many others there are.
            narrow: without intervals.
        """
        level = None if brief or narrow else next((check.confidence for check in self.checks if check.interval), None)
        checks = [check for check in self.checks if not (brief and check.key in self.headlined)]
        rows = [_row(check, brief or narrow, level) for check in checks]
        tones = [_tone(check) for check in checks]
        most = _MOST_CHECKS
        others, wrong = rows[most:], sum(not check.passed for check in checks[most:])
        more = (
            f"{counted(len(others), 'more check')}, {f'{wrong} of them' if wrong else 'none'} failed" if others else ""
        )
        note = "; ".join(filter(None, [self.judged_on, more if brief else ""]))
        found = [Table("Checks", rows[:most], note, whole=("outcome",), tones=tones[:most])] if rows else []
        if others and not brief:
            found.append(Table(more, others, folded=True, whole=("outcome",), tones=tones[most:]))
        return found

    @property
    def line(self) -> str:
        """The headline and the concerns in one line."""
        return " ".join([self.headline, *(f"Warning: {sentence(concern)}" for concern in self.concerns)])


def ending_of(record: RunRecord) -> RunSummary:
    """How a run ended."""
    state, verdict = record.state, record.verdict
    word, tone, begins = _ENDS.get(state, (str(state), "amber", "The candidate is not promoted"))
    at = f" in {listed(record.broken_off)}" if record.broken_off else ""
    headline = begins.format(version=record.version, alias=record.alias, last=record.last, at=at)
    found = explain(verdict) if verdict is not None and state != State.ALREADY else Explanation()
    reasons = found.reasons
    decided = [reason.text.fix for reason in reasons if reason.status == reasons[0].status]
    forced = bool(reasons and reasons[0].overruled)
    error = record.error or ""
    checks: tuple[Check, ...] = ()
    if verdict and state != State.ALREADY:
        checks = tuple(sorted(verdict.checks, key=lambda check: _gravity(check, verdict.primary)))
    covered = {check.key for check in checks if check.value is not None or check.change is not None}
    if state in (State.FAILED, State.OVERTAKEN):
        first_line = next((line.rstrip(":") for line in error.splitlines() if line.strip()), "no reason is known")
        headline = f"{headline}: {first_line}"
    elif state == State.DONE and verdict is not None:
        word = "would be promoted" if verdict.promote else "would not be promoted"
        headline = f"The candidate {word}; this run ended before a promotion"
    elif state == State.PROMOTED and verdict and verdict.basis == "first model" and verdict.primary:
        headline = f"{headline}, the first of this model: {level(verdict)}"
        reasons = reasons[1:]
    elif reasons and state not in (*NO_VERDICT, State.NAMED):
        summary, detail, fix = reasons[0].text
        headline = f"{headline}{' by force, against' * forced}: {summary}"
        if checks or not (detail or fix):
            reasons = reasons[1:]
    # by force: the headline is the first concern
    concerns = (*(found.concerns[forced:] if verdict and verdict.promote else ()), *record.warnings)
    if (concerns or forced) and tone in ("green", "plain") and not record.going_on:
        tone = "amber"
    ending = RunSummary(word=word, tone=tone, headline=sentence(headline), concerns=concerns, error=error)
    if verdict is None:
        return ending
    remarks = [note for note in found.notes if not (note.concern and verdict.promote)]
    remarks += [alarm for alarm in found.alarms if not alarm.concern]  # a concern is a warning of the run
    more = {
        "reasons": tuple(str(reason) for reason in reasons if reason.key not in covered),
        "fixes": tuple(dict.fromkeys(f"what to do: {fix}" for fix in decided if checks and all(decided))),
        "notes": (*(str(note) for note in remarks if note.key not in covered), *_tested(record)),
        "checks": checks,
        "headlined": tuple(c.key for c in checks if verdict.basis == "first model" and c.name.endswith(" baseline")),
        "stands": _stands(record, verdict),
        "since": _since(record.champion) if record.champion else "",
        "meanings": _meanings(verdict, checks, headline),
        "judged_on": "" if verdict.rows is None else f"judged on {rows_of(verdict.rows, verdict.spans)}",
    }
    return ending.model_copy(update=more)


def _tested(record: RunRecord) -> list[str]:
    if record.test is None:
        return []
    rows = counted(record.test.rows, "row")
    return [f"on the {rows} of the test split, which decide nothing: {metrics_line(record.test.metrics)}"]


def _meanings(verdict: Verdict, checks: Sequence[Check], headline: str) -> str:
    headlined = verdict.primary and re.search(rf"\b{re.escape(verdict.primary)}\b", headline)
    better: dict[str | None, Better | None] = {verdict.primary: verdict.better} if headlined else {}
    better |= {check.metric: check.better for check in checks[:_MOST_CHECKS]}
    said = [
        (name, meaning(name, verdict.task) or (side and f"{side} is better")) for name, side in better.items() if name
    ]
    return "; ".join(f"{name}: {text}" for name, text in said if text)


def _stands(record: RunRecord, verdict: Verdict) -> str:
    if verdict.promote or record.state not in (State.KEPT, State.REJECTED, State.NEEDS_PERSON):
        return ""
    champion = record.champion
    return "no version is in production yet" if champion is None else f"version {champion.version} stays in production"


def _since(champion: ChampionSummary) -> str:
    """Returns what changed since the champion, in words."""
    said = [
        f"{what} {cell(now)}" if was is None else f"{what} {cell(was) or 'none'} -> {cell(now)}"
        for what, was, now in champion.changes
    ]
    return f"since version {champion.version}: {some(said, _MOST_CHANGES, sep='; ')}" if said else ""


def ending_section(ending: RunSummary) -> Section:
    """How a run ended, as a part that stands alone."""
    return Section(
        f"Verdict: {ending.coloured}",
        [ending.headline],
        findings=[Finding("warning", concern) for concern in ending.concerns],
        points=ending.said,
        tables=ending.tables(),
        texts=[("Error", ending.error)] if ending.error else [],
    )


# --- the checks


def _gravity(check: Check, primary: str | None) -> tuple[bool, ...]:
    """Sorts what speaks against a candidate first, then what a person should look at, then the metric that decides."""
    tone, decay = _tone(check), check.name == DECAY
    risk = (check.passed, tone != "red", tone != "amber" or decay)
    first = (*risk, check.slice is not None, check.name != CHAMPION, not decay)
    return (*first, check.metric != primary, tone != "green")


def _tone(check: Check) -> Tone:
    """Returns the tone of what an outcome means for the candidate."""
    if not check.passed:
        return "plain" if check.status == KEPT else "amber" if check.status == NEEDS_PERSON else "red"
    if check.outcome in (BEYOND, NOT_COMPARED, "worse", "too few rows") or check.perhaps_beyond:
        return "amber"
    return "plain" if check.outcome in (CANNOT_TELL, WITHIN) else "green"


_TITLES = {
    CHAMPION: "{what} against {against}",
    ANCHOR: "{what} against {against}, the anchor",
    DECAY: "{what}, {against}",
    THRESHOLD: "{what}",
    "newer data": "newer data than {against}",
    "comparable": "comparable with {against}",
    "same model": "the same model as {against}",
}
"""What a check looks at, by its name."""


def _row(check: Check, narrow: bool, level: float | None) -> dict[str, object]:
    where = None if check.slice is None else named(check.slice, check.slice_value)
    what = " on ".join(filter(None, [check.metric, where]))
    unknown = "{what} against the {name}" if check.against else "{name}: {what}"
    known = _TITLES.get(check.name, unknown if what else "{name}")
    known = "{what}" if where and check.name == CHAMPION else known
    before, now, against = check.before, check.value, str(check.against)
    if check.name == DECAY:
        against = against.replace("at its", "since")
        if abs((now or 0) - (before or 0) - (check.change or 0)) > 1e-9:  # the constant moved too
            before, now, what = None, None, f"{what} minus constant"
    change = change_text(check.model_copy(update={"interval": None}) if narrow else check)
    if check.interval and check.confidence != level and not narrow:
        change = f"{signed(check.change)} ({between(check.interval, check.confidence)})"
    return {
        "check": known.format(what=what, name=check.name, against=against).strip(),
        "before": None if before is None else metric_text(before),
        "now": None if now is None else metric_text(now),
        "change" if level is None else f"change ({100 * level:.4g}% interval)": change,
        "worst allowed": allowed(check),
        "outcome": outcome_text(check),
    }


def outcome_text(check: Check) -> str:
    """Returns the outcome of a check as a table cell; a change for the worse beyond chance is called worse."""
    if check.outcome != CANNOT_TELL or check.name not in _TITLES:
        return UNCLEAR if check.outcome == CANNOT_TELL else check.outcome
    return "worse, perhaps within the limit" if outcome_of(check) == "worse" else CANNOT_TELL


def allowed(check: Check) -> str:
    """The limit of a check; empty: it has none. That of a change has the sign of a change for the worse."""
    if check.allowed is None:
        return ""
    if check.limit in ("at least", "at most"):
        return f"{check.limit} {number(check.allowed)}"
    if check.better is None:
        return number(check.allowed)
    return signed(-check.allowed if check.better == "higher" else check.allowed)
