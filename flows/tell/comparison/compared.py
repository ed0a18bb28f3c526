"""Two versions of a model, or two runs, compared.

found = compare(registry, "4", "champion")
found.ending.headline, found.same.metrics["auc"].difference
found.value                              # what `headway compare --json` prints
found.path                               # where its page is kept: <store>/runs/compare-flights-4-5.html
"""

from collections.abc import Mapping
from pathlib import Path

from pydantic import ConfigDict, Field, JsonValue, computed_field

from flows.records import Code
from flows.tell.comparison.same_rows import SameRows, on_the_same_rows
from flows.tell.comparison.sides import Settings, Side, named_side
from flows.tell.ending import Ending, Tone
from flows.tell.paired import UNCLEAR, change_text, outcome_of
from headway.config import Frozen
from headway.errors import ConfigError
from headway.evaluation.verdict import Check
from headway.messages import capital, counted, listed
from headway.metrics.base import Better, Rows
from headway.registry.gc import COMPARED
from headway.registry.registry import Registry
from headway.storage.store import Store
from headway.tasks.table import task_of

_TONES: dict[str, Tone] = {"better": "green", "worse": "red"}


class Differs(Frozen):
    """A setting, or a part of the code; None stands for one that a side lacks."""

    key: str
    a: JsonValue
    b: JsonValue


class ColumnsApart(Frozen):
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    changes: tuple[tuple[str, str], ...] = Field(exclude=True)
    """(column of both, what of it differs)"""

    @computed_field
    def changed(self) -> list[str]:
        return [f"{name}: {change}" for name, change in self.changes]


class DataApart(Frozen):
    """The training spans that only one side has, and those whose raw files changed in between."""

    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    files_changed: tuple[str, ...]


class Compared(Frozen):
    """What differs between A and B, and what they are worth."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    a: Side
    b: Side
    same: SameRows | None = Field(serialization_alias="difference")
    """None: no rows that both scored."""
    no_difference: str | None
    config: tuple[Differs, ...]
    code: tuple[Differs, ...] | None
    """None: it was not kept of both."""
    columns: ColumnsApart | None
    data: DataApart

    pipeline: str = Field(exclude=True)
    store: Store = Field(exclude=True)
    scored: tuple[Rows, Rows] | None = Field(exclude=True)
    """Of `same`, both sides' in one order."""

    @property
    def primary(self) -> tuple[str | None, Better | None]:
        """The metric that decides and which values of it are better, as the gate of a side has them, else the task; (None, None)
        where no metric is known of both."""
        both = [name for name in self.a.metrics if name in self.b.metrics]
        for side in (self.b, self.a):
            verdict = side.material.verdict
            if verdict is not None and verdict.primary in both:
                return verdict.primary, verdict.better
        task = self.a.task
        if task is not None and ":" not in task and task_of(task).primary in both:
            return task_of(task).primary, None
        return (both[0], None) if both else (None, None)

    @property
    def apart(self) -> list[Check]:
        """B against A by every metric on the same rows; that which decides comes first."""
        primary, better = self.primary
        found = self.same.metrics if self.same is not None else {}
        return [
            each.check(name, better if name == primary else None)
            for name, each in sorted(found.items(), key=lambda item: item[0] != primary)
        ]

    @property
    def ending(self) -> Ending:
        """The comparison in one sentence, and what differs between the two."""
        word, tone, headline = self._said()
        said = f"What differs: {_differing(self) or 'nothing in data, columns, settings or code, as far as they were kept'}."
        problems = tuple(f"{side.title}: {side.problem}" for side in (self.a, self.b) if side.problem)
        return Ending(word=word, tone=tone, headline=capital(headline), reasons=(said,), concerns=problems)

    def _said(self) -> tuple[str, Tone, str]:
        """(word, tone, headline)"""
        a, b, same = self.a, self.b, self.same
        if without := [side.title for side in (a, b) if not side.metrics]:
            has = "has" if len(without) == 1 else "have"
            return "not evaluated", "plain", f"{' and '.join(without)} {has} no metrics: nothing was evaluated."
        cannot = "It cannot be told which one is better"
        if a.task != b.task:
            if None in (a.task, b.task):
                return "not compared", "amber", f"{cannot}: {self.no_difference}."
            known = [f"{side.title} has the task {side.task}" for side in (a, b)]
            return "different tasks", "plain", f"{known[0]}, {known[1]}: their metrics do not compare."
        metric, _ = self.primary
        if metric is None:
            return "different metrics", "plain", f"{a.title} and {b.title} have no metric in common."
        found = next((each for each in self.apart if each.metric == metric), None)
        if same is None or found is None:
            why = "the interval of their difference is not known" if same else self.no_difference
            return "not compared", "amber", f"{cannot} by {metric}: {why}."
        by = f"{metric} {change_text(found)} on the {counted(same.rows, 'row')} that both scored"
        if (outcome := outcome_of(found)) in _TONES:
            return f"{b.label} is {outcome}", _TONES[outcome], f"{b.title} is {outcome} than {a.title}: {by}."
        between = "No clear difference between"
        if not outcome:
            between = "The difference has no interval, so nothing is clear between"
        return UNCLEAR, "plain", f"{between} {a.title} and {b.title}: {by}."

    @property
    def value(self) -> dict[str, JsonValue]:
        """What --json has of it."""
        return {"summary": self.ending.headline, **self.model_dump(mode="json", by_alias=True)}

    @property
    def path(self) -> Path:
        """Where its page is kept, written or not; the same two have the same page."""
        return self.store.runs_folder / f"{COMPARED}{self.pipeline}-{self.a.name}-{self.b.name}.html"


def compare(registry: Registry, first: str, second: str) -> Compared:
    """Compare two versions, named by number, champion, previous or an alias, or two runs.

    Raises:
        StoreError: no version or run has this name.
        ConfigError: both are the same one.
    """
    a, b = named_side(registry, first, "A"), named_side(registry, second, "B")
    if a.name == b.name:
        same = f"version, {a.name}" if a.version else f"run, {a.name}"
        problem = f"{first} and {second} are the same {same}"
        raise ConfigError(problem, fix="headway models lists the versions, and headway runs the runs")
    found = on_the_same_rows(registry.store, a, b)
    return Compared(
        a=a,
        b=b,
        same=found.same if found else None,
        no_difference=None if found else _why_none(a, b),
        config=differences(_settings(a), _settings(b)),
        code=differences(code_in(a.code), code_in(b.code)) if a.code and b.code else None,
        columns=_columns(a, b),
        data=_data(a, b),
        pipeline=registry.name,
        store=registry.store,
        scored=found.rows if found else None,
    )


def _settings(side: Side) -> Settings | None:
    """The config and the seed, as far as they are known."""
    seed = side.material.record.seed
    return side.config if seed is None or side.config is None else {**side.config, "seed": seed}


def _why_none(a: Side, b: Side) -> str:
    """Why no difference is computed between the two."""
    if a.task != b.task:
        if gone := [side.title for side in (a, b) if side.task is None]:
            return f"the store no longer has the evaluation of {gone[0]}, and so its task is not known"
        return "metrics do not compare: their tasks differ"
    if a.task is not None and ":" in a.task:
        told = f"no difference is computed of {a.task}, a task of your own"
        return f"{told}; where the gate judged one against the other, its reasons have it"
    return "metrics are of different rows: no run scored the same rows with both"


def code_in(code: Code | None) -> dict[str, JsonValue]:
    """The commit, files that differ from it, the user's modules and the tools' versions."""
    if code is None:
        return {}
    git = code.git
    changed = ", ".join(git.changed) if git else ""
    told: dict[str, JsonValue] = {"commit": git.commit if git else None, "not committed": changed or None}
    return {**told, **code.modules, **code.tools}


def differences(a: object, b: object, at: str = "") -> tuple[Differs, ...]:
    """Each leaf of two configs that differs; of a section that one of them lacks, each that is set."""
    if a == b:
        return ()
    mine, theirs = ({} if each is None else each for each in (a, b))
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        below = (differences(mine.get(n), theirs.get(n), f"{at}.{n}".lstrip(".")) for n in {**mine, **theirs})
        found = tuple(each for found in below for each in found)
        if found or (a is not None and b is not None):
            return found
    return (Differs.model_validate({"key": at, "a": a, "b": b}),)


def _columns(a: Side, b: Side) -> ColumnsApart | None:
    """Those of the models of two versions, else those that were stored; None where they are not known."""
    both = a.inputs is not None and b.inputs is not None
    mine, theirs = (side.inputs if both else side.columns for side in (a, b))
    if mine is None or theirs is None:
        return None
    changed = [name for name in mine if name in theirs and mine[name] != theirs[name]]
    return ColumnsApart(
        only_a=tuple(sorted(mine.keys() - theirs.keys())),
        only_b=tuple(sorted(theirs.keys() - mine.keys())),
        changes=tuple((name, change_of(mine[name], theirs[name])) for name in changed),
    )


def change_of(mine: Mapping[str, JsonValue], theirs: Mapping[str, JsonValue]) -> str:
    """The types of a column, else what of it differs."""
    if mine["type"] != theirs["type"]:
        return f"{mine['type']} -> {theirs['type']}"
    pairs = [(key, mine.get(key), theirs.get(key)) for key in {**mine, **theirs}]
    return ", ".join(
        f"{key} changed" if isinstance(a, Mapping) or isinstance(b, Mapping) else f"{key} {a} -> {b}"
        for key, a, b in pairs
        if a != b
    )


def _data(a: Side, b: Side) -> DataApart:
    mine, theirs = a.spans.train, b.spans.train
    both = [span for span in mine if span in theirs] if a.files and b.files else []
    return DataApart(
        only_a=tuple(span for span in mine if span not in theirs),
        only_b=tuple(span for span in theirs if span not in mine),
        files_changed=tuple(span for span in both if a.files.get(span) != b.files.get(span)),
    )


def _differing(found: Compared) -> str:
    """How much differs, in words; empty: nothing."""
    columns = found.columns
    counts = {
        "training spans": len(found.data.only_a) + len(found.data.only_b),
        "spans' raw files": len(found.data.files_changed),
        "columns": len(columns.only_a) + len(columns.only_b) + len(columns.changes) if columns else 0,
        "settings": len(found.config),
        "parts of the code or its tools": len(found.code or ()),
    }
    return listed([f"{what}: {count:,}" for what, count in counts.items() if count])
