"""Checks the label: more than one value, and the same classes in every split. Also checks the rows' weights.

It is an error if eval has a class that train lacks, or, beyond chance, lacks a class of train: metrics would mislead.

found = list(check_label("eval", eval_label, train_label, "binary", config))
"""

from collections.abc import Iterator

from headway.messages import agree, counted
from headway.schema.columns import LABEL
from headway.statistics.column_statistics import ColumnStatistics
from headway.tasks.base import Task
from headway.tasks.table import task_of
from headway.validation.anomaly import Anomaly, finding, listed, value_text
from headway.validation.config import ValidateConfig

BY_CHANCE = 5.0
"""If so many rows of a class or value are expected, having none is no accident: chance does so in 0.7% of draws."""
AUTO_MOST_CLASSES = 20
"""The most values of an integer label that count as classes. With more it is a regression, unless the pipeline names a task."""


def check_label(
    split: str, label: ColumnStatistics, train: ColumnStatistics | None, task: str, config: ValidateConfig
) -> Iterator[Anomaly]:
    """Yields findings on a split's label: infinite values, only one value, classes that train or the split lacks."""
    if label.infinite:
        message = f"the label is infinite in {label.infinite:,} of {label.rows:,} {split} rows, which are ignored"
        fix = "filter them (source.where), or mend the label expression"
        yield finding("warning", "label", split, message, fix, column=LABEL)
    if label.present and label.distinct < 2:
        value = "no finite number"
        if label.distinct:
            value = value_text(label.top(1)[0][0]) if label.complete else f"of {label.longest or 0:,} bytes"
        message = f"every one of the {label.present:,} {split} rows has the label {value}"
        fix = "check the label expression, and the spans of the window"
        yield finding("error" if split == "train" else "warning", "one label", split, message, fix, column=LABEL)
    if split != "train" and train is not None and is_class(task, train) and label.complete:
        yield from _classes(split, label, train)


def check_weights(split: str, weight: ColumnStatistics) -> Iterator[Anomaly]:
    """Yields findings on the weights of a split's rows: below 0, not finite, or missing."""
    name, fix = weight.name, "mend the column, or leave these rows out (source.where)"
    if weight.minimum is not None and weight.minimum < 0:
        message = f"column {name!r} weights a row of {split} by {weight.minimum:g}: a weight is not below 0"
        yield finding("error", "weight", split, message, fix, column=name)
    if unusable := weight.nan + weight.infinite:
        message = f"column {name!r} weights {counted(unusable, 'row')} of {split} by {'nan' if weight.nan else 'inf'}: "
        yield finding("error", "weight", split, message + "a weight is a finite number", fix, column=name)
    if weight.missing:
        message = f"column {name!r} has no weight for {counted(weight.missing, 'row')} of {split}, which do not count"
        yield finding("warning", "weight", split, message, fix + ", or write 0 if that is meant", column=name)


def _classes(split: str, label: ColumnStatistics, train: ColumnStatistics) -> Iterator[Anomaly]:
    """Yields findings on classes of the split that train lacks, and on classes of train that the split lacks."""
    ours, theirs = train.top(), label.top()
    unseen = [(value, count) for value, count in theirs if value not in {value for value, _ in ours}]
    if unseen:
        rows = sum(count for _, count in unseen)
        message = f"{rows:,} of {label.present:,} {split} rows {agree(rows, 'has', 'have')} a label that no train row "
        message += f"has: {listed(unseen, len(unseen))}; train has {listed(ours, len(ours))}"
        fix = "filter these rows (source.where), mend the label expression, or widen the window so that train has them too"
        yield finding("error" if split == "eval" else "warning", "unseen label", split, message, fix, column=LABEL)
    lacking = [(value, count) for value, count in ours if value not in {value for value, _ in theirs}]
    if lacking and label.present:
        expected = max(count for _, count in lacking) * label.present / train.present
        message = f"none of the {label.present:,} {split} rows has "
        message += f"{agree(len(lacking), 'the label', 'one of the labels')} {listed(lacking, len(lacking))} "
        message += f"of train: metrics of {split} say nothing about "
        message += f"{agree(len(lacking), 'this class', 'these classes')}"
        fix = "give eval more rows (split.eval, split.eval_spans), split by a key of many values (split.key) or by a "
        fix += "column that is stratified by the label (split.mode: column), or widen the window"
        yield finding(
            "error" if split == "eval" and (expected >= BY_CHANCE or len(ours) == 2) else "warning",
            "missing class",
            split,
            message,
            fix,
            column=LABEL,
        )


def check_vanished_classes(ours: ColumnStatistics, theirs: ColumnStatistics, whose: str) -> Iterator[Anomaly]:
    """Report classes of the champion's train rows (`theirs`) that no train row has now (`ours`), unless chance explains it. Both
    labels must be classes, and all their values counted."""
    values, share = {value for value, _ in ours.top()}, ours.present / max(theirs.present, 1)
    gone = [(value, count) for value, count in theirs.top() if value not in values and count * share >= BY_CHANCE]
    if gone:
        message = f"no train row has a label that {whose} was trained on: {listed(gone, len(gone))}"
        fix = "check the label expression and the spans of the window, or widen the window"
        yield finding("warning", "vanished label", "train", message, fix, column=LABEL)


def is_class(task: str, label: ColumnStatistics) -> bool:
    """Returns whether the label has classes: by the task; if auto or the user's own, by its values. False if not all counted."""
    if not label.complete or not label.distinct:
        return False
    if (known := _known(task)) is not None:
        return known.has_classes
    few = label.type == "int64" and label.distinct <= AUTO_MOST_CLASSES
    return label.type == "bytes" or label.distinct == 2 or few


def label_kind(task: str, label: ColumnStatistics) -> str:
    """Returns "binary", "multiclass" or "regression", by the task; if it is auto or the user's own, by the label's statistics."""
    if (known := _known(task)) is not None and known.has_classes:
        return "multiclass" if known.per_class else "binary"
    if not is_class(task, label):
        return "regression"
    return "binary" if label.distinct == 2 else "multiclass"


def _known(task: str) -> Task | None:
    """Returns the task that the pipeline names. None: it is auto, or a task of the user's own module."""
    return None if task == "auto" or ":" in task else task_of(task)
