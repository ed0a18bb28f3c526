"""The gate's checks in words: why a verdict is what it is, what is remarked beside it, and why the champion needs a look.

    found = explain(verdict)
    found.reasons[0].summary       # "auc fell from 0.8534 (version 3) to 0.7016, more than the allowed drop of 0.0071"
    found.sentences

Whoever tells of a verdict says it from here. A check that is new is told by its name and its outcome, until `_TEXTS` has words
for it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headway.evaluation.slices import named, parts_of
from headway.evaluation.verdict import (
    ANCHOR,
    BETTER,
    CANNOT_TELL,
    CHAMPION,
    DECAY,
    GRAVEST_FIRST,
    NEEDS_PERSON,
    THRESHOLD,
    Check,
    LeftOut,
    Status,
    Verdict,
    nearest_to_limits,
)
from headway.messages import agree, between, chance, counted, listed, number, signed, some, window_text

BY_FORCE = "a person decides: headway promote makes it the champion all the same"
MORE_ROWS = f"give eval more rows and run again; or {BY_FORCE}"


class Text(NamedTuple):
    """A check in words: a summary, the numbers behind it, and a fix."""

    summary: str
    """A short clause without an interval."""
    detail: str = ""
    """The numbers behind it."""
    fix: str = ""


@dataclass(frozen=True)
class Remark:
    """Something to say about a candidate."""

    text: Text
    check: Check | None = None
    """That it is about."""
    overruled: bool = False
    """The candidate was promoted by force, against it."""

    @property
    def key(self) -> str | None:
        """The key of its check."""
        return None if self.check is None else self.check.key

    @property
    def status(self) -> Status | None:
        """The status that its check gives the candidate."""
        return None if self.check is None else self.check.status

    @property
    def concern(self) -> bool:
        """A person should look at it, although the candidate may be promoted."""
        return self.check is not None and self.check.concern

    @property
    def brief(self) -> str:
        """Without the numbers behind it."""
        return self.text.summary + (f"; {self.text.fix}" if self.text.fix else "")

    def __str__(self) -> str:
        summary, detail, fix = self.text
        force = "promoted by force, against: " if self.overruled else ""
        return force + summary + (f" ({detail})" if detail else "") + (f"; {fix}" if fix else "")


@dataclass(frozen=True)
class Explanation:
    """A verdict in words."""

    reasons: tuple[Remark, ...] = ()
    """The gravest first; of a candidate that is promoted, what speaks for it."""
    notes: tuple[Remark, ...] = ()
    """What decided nothing."""
    alarms: tuple[Remark, ...] = ()
    """Why the champion itself needs a look; they change no verdict."""

    @property
    def sentences(self) -> list[str]:
        """The reasons and the notes."""
        return [str(remark) for remark in (*self.reasons, *self.notes)]

    @property
    def concerns(self) -> list[str]:
        """The remarks that a person should look at although the candidate is promoted."""
        overruled = [reason for reason in self.reasons if reason.overruled]
        return [str(remark) for remark in overruled] + [note.brief for note in self.notes if note.concern]


def explain(verdict: Verdict) -> Explanation:
    """A verdict in words."""
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
    """Why a candidate is promoted."""
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
    """The primary metric of the candidate beside that of the baselines."""
    name = verdict.primary or ""
    # of a metric of the user's own nobody else can know
    which = f" ({'more' if verdict.better == 'higher' else 'less'} is better)" if ":" in name else ""
    known = [(who, values[name]) for who, values in verdict.metrics.baselines.items() if values.get(name) is not None]
    others = "".join(f", {who} {number(value)}" for who, value in known)
    return f"{name} is {number(verdict.metrics.candidate.get(name))}{which}{others}"


def _worth_a_note(checks: Sequence[Check], *, missed: bool) -> list[Check]:
    """Of slices only what is beyond a limit is told; and of thresholds, if none is missed, on a slice's values the nearest to
    the limit."""
    thresholds = [check for check in checks if check.name == THRESHOLD]
    met = [] if missed else nearest_to_limits([check for check in thresholds if check.value is not None])
    others = [c for c in checks if c.name != THRESHOLD and c.slice is None and c.outcome != "not compared"]
    return [*met, *(check for check in thresholds if check.value is None), *others]


def _general(verdict: Verdict) -> list[str]:
    """Returns sentences on what the comparison rests on, and on the slices."""
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
    return f"{named(entry.slice, entry.value)} ({entry.why})"


# --- a check


def _text(check: Check, verdict: Verdict) -> Text:
    if check.name in _TEXTS:
        return _TEXTS[check.name](check, verdict)
    return _baseline(check, verdict) if check.name.endswith(" baseline") else Text(f"{check.name}: {check.outcome}")


def _without_value(check: Check, verdict: Verdict) -> Text:
    missing = f"{listed(check.names)} {agree(len(check.names), 'has', 'have')} no value on these rows"
    compared = {each.metric for each in verdict.checks} - {*check.names}
    alone = len(check.names) == 1 and (verdict.champion is not None or bool(compared & {verdict.primary}))
    return Text(f"{missing}, and gate.tolerance asks for one" if alone else missing)


def _threshold(check: Check, verdict: Verdict) -> Text:
    if check.outcome == "not checked":
        return _unchecked(check)
    where = f" on {named(check.slice, check.slice_value)}" if check.slice else ""
    value = f"{check.metric}{where} is {number(check.value)}"
    if check.passed:
        return Text(f"{value}, {check.limit} {number(check.allowed)} is required")
    rows = f" ({counted(check.rows or 0, 'row')})" if check.slice else ""
    if check.value is None:
        return Text(f"{check.metric}{where}{rows} has no value on these rows, and a threshold asks for one")
    beyond = "below the required minimum" if check.limit == "at least" else "above the allowed maximum"
    return Text(f"{check.metric}{where}{rows} is {number(check.value)}, {beyond} of {number(check.allowed)}")


def _unchecked(check: Check) -> Text:
    """A threshold on a slice that could not be looked at, or on some of its values."""
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
    """A metric beside another version's on the same rows."""
    at = f"{named(check.slice, check.slice_value)} ({counted(check.rows or 0, 'row')}): " if check.slice else ""
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
    details = [f"{signed(check.change)}, {between(check.interval, check.confidence)}"]
    details += [f"the limit is {share_text(check)}"] if check.share is not None and check.outcome != BETTER else []
    if check.outcome == CANNOT_TELL:
        details.append(f"the smallest loss that could have been detected is {number(check.detectable)}")
    if check.slice and not check.passed:
        details.append(f"{chance(check.p_adjusted)} after correcting for all slices")
    return Text(summary, "; ".join(details))


def share_text(check: Check) -> str:
    """Returns what the limit of a check is a share of, in words."""
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
    better = f"{verdict.primary} is not better than with {check.against}"
    mixed = [c.metric or "" for c in verdict.compared() if c.worse and not c.surely_within]
    if mixed and any(c.outcome == BETTER for c in verdict.compared()):
        gained = listed([c.metric or "" for c in verdict.compared() if c.outcome == BETTER])
        better = (
            f"{gained} {agree(len(gained), 'is', 'are')} better than with {check.against}, but {listed(mixed)} worse"
        )
    return Text(f"{better}, and the candidate's {newest}", f"{check.against} stays")


def _baseline(check: Check, verdict: Verdict) -> Text:
    """A metric beside a baseline's."""
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
    """The gain over a baseline with its interval; empty where there are too few rows for one."""
    if check.upward is None or check.change is None:
        return ""
    low, high = check.upward
    by_chance = ", which chance can explain" if low <= 0 <= high else ""
    return f"a gain of {signed(check.gained)}, {between(check.upward, check.confidence)}{by_chance}"


def _alarms(decays: Sequence[Check], verdict: Verdict) -> tuple[Remark, ...]:
    """How a champion became worse, and what to do."""
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
    interval = check.upward and (-check.upward[1], -check.upward[0])
    worse = f"worse by {number(abs(check.change or 0.0))}, {between(interval, check.confidence)}"
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
