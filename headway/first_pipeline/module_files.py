"""A module to begin with, with a Keras model, a loss, a metric or a preprocess function of one's own, and a test of it.

files = module_files("model", draft)              # {"model.py": ..., "test_model.py": ...}
"""

import itertools
import json
import re
from pathlib import Path
from typing import Literal

from headway.errors import ConfigError
from headway.first_pipeline.draft import Draft

Module = Literal["model", "loss", "metric", "preprocess"]
NAMES = {"model": "model", "loss": "model", "metric": "metric", "preprocess": "features"}
"""Of the files, by what they hold."""
_TEMPLATES = Path(__file__).parent / "templates"
_BODIES = {
    "binary": (
        "1",
        "a logit",
        """\
    label = tf.cast(batch["label"], tf.float32)
    loss = tf.nn.sigmoid_cross_entropy_with_logits(labels=label, logits=outputs[:, 0])
    return tf.where(label > 0, 2.0 * loss, loss)  # a missed positive costs twice as much""",
    ),
    "multiclass": (
        "classes",
        "a logit for each class",
        """\
    label = tf.cast(batch["label"], tf.int32)
    smooth = tf.one_hot(label, outputs.shape[1], on_value=0.95, off_value=0.05 / (outputs.shape[1] - 1))
    return tf.nn.softmax_cross_entropy_with_logits(labels=smooth, logits=outputs)""",
    ),
    "regression": (
        "1",
        "the prediction",
        """\
    error = outputs[:, 0] - tf.cast(batch["label"], tf.float32)
    return tf.where(error > 0, tf.square(error), 2.0 * tf.square(error))  # too little costs twice as much""",
    ),
    "count": (
        "1",
        "the logarithm of the expected count",
        """\
    label = tf.cast(batch["label"], tf.float32)
    return tf.exp(outputs[:, 0]) - label * outputs[:, 0]  # Poisson""",
    ),
}
_COSTS = {
    "binary": (
        "",
        "the probability of 1",
        """\
    positive = prediction >= 0.5
    costs = np.where(label > 0, 5.0 * ~positive, 1.0 * positive)  # a missed positive costs five false alarms""",
    ),
    "multiclass": (
        ", classes",
        "the probability of each class",
        """\
    best = np.argsort(-prediction, axis=1)[:, :2]
    costs = 1.0 - (best == label[:, None]).any(axis=1)  # the label is not among the two likeliest classes""",
    ),
    **dict.fromkeys(
        ("regression", "count"),
        (
            "",
            "the predicted number",
            """\
    error = prediction - label
    costs = np.where(error > 0, error, -2.0 * error)  # too little costs twice as much""",
        ),
    ),
}
_READS = {
    "number": ("value = tf.cast(columns[{}], tf.float32)", "tf.sign(value) * tf.math.log1p(tf.abs(value))", "log_{}"),
    "text": ("text = columns[{}]", "tf.cast(tf.strings.length(text), tf.float32)", "{}_length"),
}
"""By a column's type: what is read of it, what is computed, and the name of that."""


def module_files(module: Module, draft: Draft) -> dict[str, str]:
    """Returns the texts of the module and of its test.

    Raises:
        ConfigError: `preprocess` is to compute from a number or a text, and there is none.
    """
    task = draft.facts.task or draft.facts.kind
    if module == "metric":
        shape, meaning, body = _COSTS[task]
        exact = "np.eye(4)[LABEL]" if task == "multiclass" else "LABEL.astype(np.float64)"
        filled = {"SHAPE": shape, "MEANING": meaning, "BODY": body, "CUT": " % 2" * (task == "binary"), "EXACT": exact}
        return _filled({"metric.py": "metric", "test_metric.py": "test_metric"}, filled)
    if module == "preprocess":
        column, kind = _column(draft)
        read, value, _ = _READS[kind]
        rows = "[0, 20, -3]" if kind == "number" else '["", "one", "three"]'
        filled = {"READ": read.format(_literal(column)), "VALUE": value, "ROWS": rows, "COLUMN": _literal(column)}
        filled["NEW"] = _literal(_computed_name(draft))
        return _filled({"features.py": "features", "test_features.py": "test_features"}, filled)
    if module == "model":
        kind = {"count": "binary"}.get(task, task)  # of one output as well
        return _filled({"model.py": "model", "test_model.py": "test_model"}, {"TASK": kind})
    width, meaning, body = _BODIES[task]
    return {
        **_filled({"model.py": "loss"}, {"WIDTH": width, "MEANING": meaning, "BODY": body}),
        **_filled({"test_model.py": "test_loss"}, {"WIDTH": {"classes": "3"}.get(width, width)}),
    }


def _filled(templates: dict[str, str], values: dict[str, str]) -> dict[str, str]:
    """Templates with each @NAME@ replaced, in one pass: a value may contain such a name itself."""
    texts = {file: (_TEMPLATES / f"{name}.py.txt").read_text(encoding="utf-8") for file, name in templates.items()}
    return {file: re.sub("@([A-Z]+)@", lambda found: values[found[1]], text) for file, text in texts.items()}


def _computed_name(draft: Draft) -> str:
    """Returns the name of the column that the template computes: one that the data have not."""
    column, kind = _column(draft)
    name = _READS[kind][2].format(column)
    taken = {choice.column for choice in draft.choices} | draft.label.columns()
    return next(free for n in itertools.count(1) if (free := name if n == 1 else f"{name}_{n}") not in taken)


def _column(draft: Draft) -> tuple[str, str]:
    """Returns (name, type) of the column that the template computes from: the first number, else the first text."""
    kinds = {"number": "number", "integer": "number", "text": "text"}
    found = [
        (choice.column, kinds[choice.type])
        for choice in draft.choices
        if choice.use == "feature" and choice.type in kinds
    ]
    if not found:
        raise ConfigError("there is no number and no text to compute from", where="--module preprocess")
    return min(found, key=lambda each: each[1])


def _literal(name: str) -> str:
    """Returns a name as a Python literal."""
    return json.dumps(name, ensure_ascii=False)
