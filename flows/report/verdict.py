"""How a run ended, in words and a colour, and the gate's checks in words, for terminal, pages and Prefect.

    ending = ending_of(record)
    ending.headline, ending.tone        # "Version 2 is promoted: auc rose from 0.887 (version 1) to 0.8944.", "green"
    found = explain(verdict)
    found.reasons[0].text.summary       # "auc fell from 0.8534 (version 3) to 0.7016, more than the allowed drop of 0.0071"
    found.sentences

A check that `_TEXTS` has no words for is told by its name and its outcome.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from flows.records import NO_VERDICT, ChampionSummary, RunRecord, State
from flows.report.model import Finding, Section, Table, cell
from flows.report.versions import UNCLEAR, change_text, outcome_of, rows_of
from headway.config import Frozen
from headway.evaluation.slices import parts_of, slice_text
from headway.evaluation.verdict import (
    ANCHOR,
    BETTER,
    BEYOND,
    CANNOT_TELL,
    CHAMPION,
    DECAY,
    GRAVEST_FIRST,
    KEPT,
    NEEDS_PERSON,
    NOT_COMPARED,
    THRESHOLD,
    WITHIN,
    Check,
    LeftOut,
    Status,
    Verdict,
    nearest_to_limits,
)
from headway.messages import (
    agree,
    counted,
    interval_text,
    listed,
    metric_text,
    metrics_line,
    number,
    p_text,
    sentence,
    signed,
    some,
    window_text,
)
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
    """Returns the word for a run's state, as people read it."""
    return _ENDS[state][0] if state in _ENDS else state


class RunSummary(Frozen):
    """The summary at the top of a page: how a run ended, or the state of another subject of the page, such as a model."""

    word: str
    """The state in a word or two."""
    tone: Tone
    headline: str
    """One sentence."""
    concerns: tuple[str, ...] = ()
    """What a person should look at, whatever the verdict."""
    said: tuple[str, ...] = ()
    """Sentences beside the headline: the version that stays in production, what changed since the champion, the gate's
    reasons that neither the headline nor a check says, and what would change the verdict."""
    notes: tuple[str, ...] = ()
    """The gate's remarks that decided nothing and that no check says."""
    checks: tuple[Check, ...] = ()
    """The gate's checks; the ones against the candidate come first."""
    headlined: tuple[str, ...] = ()
    """The keys of the checks that the headline states: a first model's with the baselines; else empty."""
    judged_on: str = ""
    """A phrase for the rows on which the values of all checks were computed."""
    meanings: str = ""
    """What the metrics in the headline and the first checks mean."""
    error: str = ""
    """The whole error of a run that failed."""

    @property
    def label(self) -> str:
        """The word; if there are concerns, "with warnings" is added."""
        return f"{self.word}, with warnings" if self.concerns else self.word

    @property
    def coloured(self) -> str:
        """The label with the name of its colour, for text without colours."""
        return self.label if self.tone == "plain" else f"{self.label} ({self.tone})"

    def tables(self, *, brief: bool = False, narrow: bool = False) -> list[Table]:
        """Returns a table of the first checks and a folded table of the others; an empty list without checks.

        Args:
            brief: only the first checks that the headline does not state, without intervals; a note counts the others.
            narrow: the same tables without intervals.
        """
        level = None if brief or narrow else next((check.confidence for check in self.checks if check.interval), None)
        checks = [check for check in self.checks if not (brief and check.key in self.headlined)]
        first = all(check.beside_baseline for check in checks)  # nothing was before a first model
        titles = ("baseline", "candidate") if first else ("before", "now")
        rows = [_row(check, titles, brief or narrow, level) for check in checks]
        tones = [_tone(check) for check in checks]
        most = _MOST_CHECKS
        others, wrong = rows[most:], sum(not check.passed for check in checks[most:])
        more = (
            f"{counted(len(others), 'more check')}, {f'{wrong} of them failed' if wrong else 'all passed'}"
            if others
            else ""
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
    """Returns the summary of how a run ended."""
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
    untold = [str(reason) for reason in reasons if reason.key not in covered]
    fixes = dict.fromkeys(f"what to do: {fix}" for fix in decided if checks and all(decided))
    notes = [*(str(note) for note in remarks if note.key not in covered), *_tested(record)]
    since = _since(record.champion) if record.champion else ""
    said = [_stands(record, verdict), since, *untold, *fixes, *([] if checks else notes)]
    more = {
        "said": tuple(filter(None, said)),
        "notes": tuple(notes if checks else ()),
        "checks": checks,
        "headlined": tuple(c.key for c in checks if verdict.basis == "first model" and c.beside_baseline),
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
    """Returns the summary of a run as a section that stands alone."""
    return Section(
        f"Verdict: {ending.coloured}",
        [ending.headline],
        findings=[Finding("warning", concern) for concern in ending.concerns],
        points=ending.said,
        tables=ending.tables(),
        texts=[("Error", ending.error)] if ending.error else [],
    )


# --- the checks as rows of a table


def _gravity(check: Check, primary: str | None) -> tuple[bool, ...]:
    """Returns a check's sort key: failed first, then those to look at, on all rows, of the champion, of the primary metric."""
    tone, decay = _tone(check), check.name == DECAY
    risk = (check.passed, tone != "red", tone != "amber" or decay)
    first = (*risk, check.slice is not None, check.name != CHAMPION, not decay)
    return (*first, check.metric != primary, tone != "green")


def _tone(check: Check) -> Tone:
    """Returns the colour of a check, by what its outcome means for the candidate."""
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
"""The text of the cell that says what a check compares, by the check's name."""


def _row(check: Check, titles: tuple[str, str], narrow: bool, level: float | None) -> dict[str, object]:
    where = None if check.slice is None else slice_text(check.slice, check.slice_value)
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
        change = f"{signed(check.change)} ({interval_text(check.interval, check.confidence)})"
    return {
        "check": known.format(what=what, name=check.name, against=against).strip(),
        titles[0]: None if before is None else metric_text(before),
        titles[1]: None if now is None else metric_text(now),
        "change" if level is None else f"change ({100 * level:.4g}% interval)": change,
        "limit": limit_text(check),
        "outcome": outcome_text(check),
    }


def outcome_text(check: Check) -> str:
    """Returns the outcome of a check as the text of a table cell, such as "worse, perhaps within the limit"."""
    if check.outcome != CANNOT_TELL or check.name not in _TITLES:
        return UNCLEAR if check.outcome == CANNOT_TELL else check.outcome
    return "worse, perhaps within the limit" if outcome_of(check) == "worse" else CANNOT_TELL


def limit_text(check: Check) -> str:
    """Returns a check's limit as text; "" without a limit. For a change it has the sign of a change for the worse."""
    if check.allowed is None:
        return ""
    if check.limit in ("at least", "at most"):
        return f"{check.limit} {number(check.allowed)}"
    if check.better is None:
        return number(check.allowed)
    return signed(-check.allowed if check.better == "higher" else check.allowed)


# --- a verdict in words

BY_FORCE = "to make it the champion all the same, type headway promote"
MORE_ROWS = f"give eval more rows and run again; {BY_FORCE}"


class Text(NamedTuple):
    """A check in words: a summary, the numbers behind it, and a fix."""

    summary: str
    """A short clause without an interval."""
    detail: str = ""
    """The numbers behind it."""
    fix: str = ""


@dataclass(frozen=True)
class Remark:
    """A remark on a candidate, mostly about one of the gate's checks."""

    text: Text
    check: Check | None = None
    """The check that the remark is about."""
    overruled: bool = False
    """Whether the candidate was promoted by force, against this remark."""

    @property
    def key(self) -> str | None:
        """The key of the remark's check; None without a check."""
        return None if self.check is None else self.check.key

    @property
    def status(self) -> Status | None:
        """The status that the remark's check gives the candidate; None without a check."""
        return None if self.check is None else self.check.status

    @property
    def concern(self) -> bool:
        """Whether a person should look at the remark, although the candidate may be promoted."""
        return self.check is not None and self.check.concern

    @property
    def brief(self) -> str:
        """The remark without the numbers behind it."""
        return self.text.summary + (f"; {self.text.fix}" if self.text.fix else "")

    def __str__(self) -> str:
        summary, detail, fix = self.text
        force = "promoted by force, against: " if self.overruled else ""
        return force + summary + (f" ({detail})" if detail else "") + (f"; {fix}" if fix else "")


@dataclass(frozen=True)
class Explanation:
    """The gate's verdict in words: its reasons, notes, and alarms about the champion."""

    reasons: tuple[Remark, ...] = ()
    """The reasons of the verdict, the gravest first; if the candidate is promoted, what speaks for it."""
    notes: tuple[Remark, ...] = ()
    """Remarks that decided nothing."""
    alarms: tuple[Remark, ...] = ()
    """Remarks on a champion that has become worse; they change no verdict."""

    @property
    def sentences(self) -> list[str]:
        """The reasons and the notes as sentences."""
        return [str(remark) for remark in (*self.reasons, *self.notes)]

    @property
    def concerns(self) -> list[str]:
        """The remarks that a person should look at although the candidate is promoted."""
        overruled = [reason for reason in self.reasons if reason.overruled]
        return [str(remark) for remark in overruled] + [note.brief for note in self.notes if note.concern]


def explain(verdict: Verdict) -> Explanation:
    """Returns the explanation of a gate's verdict in words."""
    decisive = [check for check in verdict.checks if check.status]
    decisive.sort(key=lambda check: GRAVEST_FIRST.index(check.status) if check.status in GRAVEST_FIRST else 0)
    forced = verdict.basis == "forced"
    reasons = [Remark(_text(check, verdict), check, overruled=forced and not check.passed) for check in decisive]
    if verdict.basis not in (None, "forced", "same model"):
        reasons = _supports(verdict)
    said = {reason.key for reason in reasons}
    others = [check for check in verdict.checks if check.passed and check.key not in said and check.name != DECAY]
    missed = any(check.name == THRESHOLD and not check.passed for check in verdict.checks)
    notes = [Remark(_text(check, verdict), check) for check in _worth_a_note(others, missed=missed)]
    notes += [Remark(Text(text)) for text in _general(verdict)]
    decays = [check for check in verdict.checks if check.name == DECAY]
    return Explanation(tuple(reasons), tuple(notes), _alarms(decays, verdict))


def _supports(verdict: Verdict) -> list[Remark]:
    """Returns the remarks that say why a candidate is promoted."""
    if verdict.basis == "first model":
        none_set = "" if any(check.name == THRESHOLD for check in verdict.checks) else " and no threshold is set"
        return [Remark(Text(f"there is no champion yet{none_set}; {level(verdict)}"))]
    compared = verdict.compared()
    primary = next((check for check in compared if check.metric == verdict.primary), None)
    if verdict.basis == "better":
        decisive = [primary] if primary is not None and primary.outcome == BETTER else []
        decisive += [check for check in compared if check.outcome == BETTER]
        return [Remark(_text(check, verdict), check) for check in decisive[:1]]
    beside = f"; {_text(primary, verdict).summary}" if primary is not None else ""
    return [
        Remark(Text(f"its data are newer, and nothing blocks it{beside}", _text(data, verdict).summary), data)
        for data in verdict.checks
        if data.name == "newer data"
    ]


def level(verdict: Verdict) -> str:
    """Returns the candidate's primary metric beside the baselines', as text."""
    name = verdict.primary or ""
    # of a metric of the user's own nobody else can know
    which = f" ({'more' if verdict.better == 'higher' else 'less'} is better)" if ":" in name else ""
    known = [(who, values[name]) for who, values in verdict.metrics.baselines.items() if values.get(name) is not None]
    others = "".join(f", {who} {number(value)}" for who, value in known)
    return f"{name} is {number(verdict.metrics.candidate.get(name))}{which}{others}"


def _worth_a_note(checks: Sequence[Check], *, missed: bool) -> list[Check]:
    """Returns the checks to mention in notes: thresholds without a value, the thresholds nearest to their limits (none if one was
    `missed`), and comparisons on all rows. Left out are comparisons on slices, and comparisons that were not made."""
    thresholds = [check for check in checks if check.name == THRESHOLD]
    met = [] if missed else nearest_to_limits([check for check in thresholds if check.value is not None])
    others = [c for c in checks if c.name != THRESHOLD and c.slice is None and c.outcome != "not compared"]
    return [*met, *(check for check in thresholds if check.value is None), *others]


def _general(verdict: Verdict) -> list[str]:
    """Returns sentences on the rows and the slices of the comparison."""
    said = []
    if verdict.sample_of is not None:
        said.append(f"judged on a random sample of {verdict.rows or 0:,} of {verdict.sample_of:,} rows")
    if verdict.drawn_by is not None:
        said.append(verdict.drawn_by)
    if verdict.slices_compared and all(check.passed for check in verdict.compared(slices=True)):
        enough = f"{counted(verdict.slices_compared, 'slice')} with enough rows"
        beside = verdict.champion.name if verdict.champion is not None else "the champion"
        said.append(f"on none of the {enough} is it beyond the limit beside {beside}")
    if verdict.left_out:
        said.append("slices that were not compared: " + some([*map(_left_out, verdict.left_out)], 5, sep="; "))
    if verdict.slices_chosen is not None:
        parts = [part for name in verdict.slices_chosen for part in parts_of(name)]
        what = listed([f"{of} in {bins} bins" if bins else of for of, bins in parts])
        said.append(
            "evaluation.slices names no slices, so Headway chose " + (what or "none, for want of rows or columns")
        )
    return said


def _left_out(entry: LeftOut) -> str:
    if entry.values is not None:
        return f"{counted(entry.values, 'value')} of {entry.slice} ({entry.why})"
    return f"{slice_text(entry.slice, entry.value)} ({entry.why})"


# --- one check


def _text(check: Check, verdict: Verdict) -> Text:
    if check.name in _TEXTS:
        return _TEXTS[check.name](check, verdict)
    return _baseline(check, verdict) if check.beside_baseline else Text(f"{check.name}: {check.outcome}")


def _without_value(check: Check, verdict: Verdict) -> Text:
    missing = f"{listed(check.names)} {agree(len(check.names), 'has', 'have')} no value on these rows"
    compared = {each.metric for each in verdict.checks} - {*check.names}
    alone = len(check.names) == 1 and (verdict.champion is not None or bool(compared & {verdict.primary}))
    return Text(f"{missing}, and gate.tolerance asks for one" if alone else missing)


def _threshold(check: Check, verdict: Verdict) -> Text:
    if check.outcome == "not checked":
        return _unchecked_text(check)
    where = f" on {slice_text(check.slice, check.slice_value)}" if check.slice else ""
    value = f"{check.metric}{where} is {number(check.value)}"
    if check.passed:
        return Text(f"{value}, {check.limit} {number(check.allowed)} is required")
    rows = f" ({counted(check.rows or 0, 'row')})" if check.slice else ""
    if check.value is None:
        return Text(f"{check.metric}{where}{rows} has no value on these rows, and a threshold asks for one")
    beyond = "below the required minimum" if check.limit == "at least" else "above the allowed maximum"
    fix = "train a better model, or set another limit in gate.thresholds"
    return Text(f"{check.metric}{where}{rows} is {number(check.value)}, {beyond} of {number(check.allowed)}", "", fix)


def _unchecked_text(check: Check) -> Text:
    """Returns the sentence that a threshold was not checked on a slice, or not on some values of the slice."""
    least, count = f"{number(check.allowed)} rows (gate.slice_min_rows)", check.count or 0
    key = check.slice if check.slice_value is None else f"{check.slice}={check.slice_value}"
    if check.passed:
        why = {"few rows": f"with fewer than {least}", "no value": "on which it has no value"}[check.why]
        return Text(f"{check.metric} was not checked on {counted(count, 'value')} of {check.slice} {why}")
    enough = f"no value of {check.slice} has {least}" + (f" and a value of {check.metric}" if count else "")
    why = {
        "no value has enough rows": enough,
        "few rows": f"it has fewer than {least}",
        "no rows": "no evaluation row that was judged has this value",
    }[check.why]
    return Text(f"{check.metric} cannot be checked on {key}: {why}")


def _compared(check: Check, verdict: Verdict) -> Text:
    """Returns the text of a check that compares a metric with another version's on the same rows."""
    at = f"{slice_text(check.slice, check.slice_value)} ({counted(check.rows or 0, 'row')}): " if check.slice else ""
    verb, side = ("fell", "drop") if (check.change or 0) < 0 else ("rose", "rise")
    metric, limit = f"{at}{check.metric}", f"the limit of {number(check.allowed)}"
    against = f"{check.against}, the anchor" if check.name == ANCHOR else check.against
    moved = f"from {number(check.before)} ({against}) to {number(check.value)}"
    match check.outcome:
        case "better":
            summary = f"{metric} {verb} {moved}, which is better"
        case "within the limit":
            summary = f"{metric} is within {limit}: {moved}"
        case "cannot tell":
            summary = f"{metric} {verb} {moved}: too few rows to tell whether that is within {limit}"
        case "beyond the limit":
            summary = f"{metric} {verb} {moved}, more than the allowed {side} of {number(check.allowed)}"
        case _:
            return Text(f"{metric} cannot be compared with {against}")
    details = [f"{signed(check.change)}, {interval_text(check.interval, check.confidence)}"]
    details += [f"the limit is {limit_as_share(check)}"] if check.share is not None and check.outcome != BETTER else []
    if check.outcome == CANNOT_TELL:
        details.append(f"the smallest loss that could have been detected is {number(check.detectable)}")
    if check.slice and not check.passed:
        details.append(f"{p_text(check.p_adjusted)} after correcting for all slices")
    return Text(summary, "; ".join(details))


def limit_as_share(check: Check) -> str:
    """Returns the limit of a check as a share, in words: "2% of the champion's"."""
    share = f"{check.share:g}%"
    return {
        "champion": f"{share} of the champion's",
        "gain": f"{share} of the gain of {number(check.gain)} over the constant",
        "champion, no gain": f"{share} of the champion's, which does not beat the constant",
        "champion, the constant not known": f"{share} of the champion's: the constant is not known",
    }[check.share_of or "champion"]


def _anchor(check: Check, verdict: Verdict) -> Text:
    if check.metric is not None:
        return _compared(check, verdict)
    name = f"{check.against}, the anchor, cannot be compared, and the champion takes its place"
    return Text(name, *_why_not(check))


def _why_not(check: Check) -> tuple[str, ...]:
    if check.outcome == "trained on these rows":
        return (f"it was trained on evaluation rows of this run: spans {some(check.names, 5)}",)
    return (f"it gives {check.why}" if check.outcome == "not finite" else check.why,)


def _comparable(check: Check, verdict: Verdict) -> Text:
    champion = f"the champion, {check.against},"
    match check.outcome:
        case "too few rows":
            why = check.why or "a model has no value on these rows"
            return Text(f"{listed(check.names)} cannot be compared with {check.against}", why, MORE_ROWS)
        case "trained on these rows":
            spans = f"spans {some(check.names, 5)}"
            return Text(f"{champion} was trained on evaluation rows of this run", spans, BY_FORCE)
        case "not finite":
            return Text(f"{champion} gives {check.why}", "", BY_FORCE)
    return Text(f"{champion} cannot be compared: {check.why}", "", BY_FORCE)


def _newer(check: Check, verdict: Verdict) -> Text:
    match check.outcome:
        case "later spans":
            ours, theirs = check.names
            return Text(f"the candidate was trained up to span {ours}, {check.against} up to {theirs}")
        case "changed files":
            spans = some(check.names, 3)
            return Text(f"the raw files of span {spans} have changed since {check.against} was trained")
    newest = "data are not newer" if check.outcome == "not newer" else "data are not known to be newer"
    better = f"{verdict.primary} is not clearly better than with {check.against}"
    mixed = [c.metric or "" for c in verdict.compared() if c.worse and not c.surely_within]
    if mixed and any(c.outcome == BETTER for c in verdict.compared()):
        gained = [c.metric or "" for c in verdict.compared() if c.outcome == BETTER]
        verb = agree(len(gained), "is", "are")
        better = f"{listed(gained)} {verb} better than with {check.against}, but {listed(mixed)} worse"
    return Text(f"{better}, and the candidate's {newest}", f"{check.against} stays")


def _baseline(check: Check, verdict: Verdict) -> Text:
    """Returns the text of a check that compares a metric with a baseline's."""
    known = check.metric is not None
    values = f"{check.metric} is {number(check.value)}, {check.against} {number(check.before)}" if known else ""
    numbers = _gain(check)
    if check.status == NEEDS_PERSON:
        few = f"{counted(check.rows or 0, 'eval row is', 'eval rows are')} too few to say whether "
        why = ", ".join(filter(None, [values, numbers, check.why]))
        return Text(f"{few}the candidate beats the {check.name}", why, MORE_ROWS)
    fix = "" if check.passed else "gate.baseline: false would let it pass"
    told = verdict.champion is not None or check.against != "constant"
    match check.outcome:
        case "better":
            return Text(f"the candidate beats the {check.name}: {values}", numbers)
        case "worse" if check.passed:
            return Text(f"the {check.name} beats the candidate: {values}", numbers)
        case "worse":
            return Text(f"the candidate is worse than the {check.name}: {values}", numbers, fix)
        case "cannot tell" if check.passed and told:
            return Text(f"the candidate and the {check.name} cannot be told apart: {values}", numbers)
        case "cannot tell" if check.passed:
            return Text(f"beside the {check.name}: {values}", numbers)
        case "cannot tell":
            return Text(f"the candidate does not beat the {check.name}: {values}", numbers, fix)
    return Text(f"beside the {check.name}: {values}", "the rows are too few to tell which is better", fix)


def _gain(check: Check) -> str:
    """Returns the gain over a baseline with its interval; empty where there are too few rows for one."""
    if check.improvement is None or check.change is None:
        return ""
    low, high = check.improvement
    by_chance = ", which chance can explain" if low <= 0 <= high else ""
    return f"a gain of {signed(check.gained)}, {interval_text(check.improvement, check.confidence)}{by_chance}"


def _alarms(decays: Sequence[Check], verdict: Verdict) -> tuple[Remark, ...]:
    """Returns a remark on how the champion became worse, and on what to do; empty if it did not."""
    if not decays:
        return ()
    first = decays[0]
    detail = "; ".join(f"{d.metric}: {_decay(d)}" if len(decays) > 1 else _decay(d) for d in decays)
    name = (first.against or "").removesuffix(" at its promotion")
    if first.mended is None:
        said = [f"{d.metric} was {number(d.before)} and is {number(d.value)} today" for d in decays]
        summary = f"the champion, {name}, has become worse since it was promoted: {listed(said)}"
        return (Remark(Text(summary, detail), first),)
    spans, before = window_text(verdict.spans), window_text(first.names)
    other = bool(before) and spans != before
    then = listed([f"{d.metric} {number(d.before)}" for d in decays]) + (f" on {before}" if other else "")
    now = listed([number(d.value) for d in decays]) + (f" on {spans}" if other else " today")
    fell = f"{name} became worse, from {then} to {now}, and the candidate "
    if first.mended:
        return (Remark(Text(f"{fell}makes up for it", detail), first),)
    harder = f"{spans} is harder: " if other else ""
    fix = "if rows like these go on coming, expect this level"
    return (Remark(Text(f"{harder}{fell}does not make up for it", detail, fix), first),)


def _decay(check: Check) -> str:
    interval = check.improvement and (-check.improvement[1], -check.improvement[0])
    worse = f"worse by {number(abs(check.change or 0.0))}, {interval_text(interval, check.confidence)}"
    worse += f", beyond the limit of {number(check.allowed)}"
    if check.gains is None:
        return worse
    then, today = (f"{number(abs(gain))} {'better' if gain >= 0 else 'worse'} than" for gain in check.gains)
    return f"{then} the constant then, {today} it today: {worse}"


_TEXTS: dict[str, Callable[[Check, Verdict], Text]] = {
    "same model": lambda check, _: Text(f"the candidate is the champion, {check.against}: there is nothing to promote"),
    "rolled back before": lambda check, _: Text(f"this model was rolled back ({check.why}) and returns only by force"),
    "usable predictions": lambda check, _: Text(f"the candidate gives {check.why}"),
    "has a value": _without_value,
    "hold": lambda check, _: Text("it passed, and the gate is set to hold it for a person to promote"),
    "comparable": _comparable,
    "newer data": _newer,
    THRESHOLD: _threshold,
    CHAMPION: _compared,
    ANCHOR: _anchor,
}
