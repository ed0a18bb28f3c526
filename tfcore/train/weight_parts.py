"""What each row and column of a built-in model's variables stands for: a category's value, a number, a class.

    axes(ModelConfig(), layout, "embeddings/table", (17, 8))       # [[("carrier", "UA"), ("carrier", "B6"), ...], None]

So that weights can follow what they are of into a model of other vocabularies, columns or classes: `tfcore.train.warm_start`.
"""

from collections.abc import Sequence
from typing import Any

from tfcore.heads.label_parameters import LabelParameters
from tfcore.heads.table import head_of, label_task
from tfcore.models.config import ModelConfig
from tfcore.models.inputs import Layout, seen_columns

Part = tuple[Any, ...]
UNKNOWN, NULL = "<unknown>", "<null>"


def values_of(fitted: Any) -> list[Any]:
    """The value of each id of a categorical column: a word, a number, the place of a bucket."""
    last = fitted.ops[-1]
    known: list[Any] = list(last.words if last.words is not None else last.integers or ())
    if last.op == "vocabulary":
        known = [("value", value) for value in known]
        buckets = last.oov_buckets or 0
        known += [UNKNOWN] if buckets == 1 else [(UNKNOWN, buckets, place) for place in range(buckets)]
    else:
        count = fitted.size - fitted.column.nullable
        known = [(last.op, count, place) for place in range(count)]
    return [*known, NULL] if fitted.column.nullable else known


def _rows(layout: Layout, names: Sequence[str]) -> list[Part]:
    by_name = {fitted.column.name: fitted for fitted in layout.fitted}
    return [(name, value) for name in names for value in values_of(by_name[name])]


def features(config: ModelConfig, layout: Layout) -> list[Part]:
    """Each of the features that the hidden layers see, but for those of images, which come last."""
    width = range(config.embedding)
    categories = [layout.categorical[column].name for column in seen_columns(config, layout)]
    parts: list[Part] = [
        ("embedding", name, k) for name in [*categories, *(e.name for e in layout.lists)] for k in width
    ]
    if config.quantile_bins:
        return parts + [("embedded number", name, k) for name in layout.numeric for k in width]
    return parts + [("number", name) for name in layout.numeric]


def outputs_of(label: LabelParameters) -> list[Part]:
    """What each column of the model's output is: a class of a label, or a number of it."""
    width = head_of(label_task(label), label.classes).outputs
    if len(label.classes or ()) == width:
        return [("class", c) for c in label.classes or ()]
    return [("output", k) for k in range(width)]


def axes(config: ModelConfig, layout: Layout, path: str, shape: Sequence[int]) -> list[list[Part] | None]:
    """For each axis of a variable what its places stand for; None: they are the model's own, such as units.

    Args:
        path: "hidden_0/kernel".
    """
    named: list[list[Part] | None] = [None] * len(shape)
    layer = path.partition("/")[0]
    if (layer.startswith("wide_") or layer == "output") and shape[-1] == len(outputs := outputs_of(layout.label)):
        named[-1] = outputs
    numbers: list[Part] = [("number", name) for name in layout.numeric]
    if layer == "embeddings":
        named[0] = _rows(layout, [layout.categorical[column].name for column in seen_columns(config, layout)])
    elif layer == "wide_categorical":
        named[0] = _rows(layout, [entry.name for entry in layout.categorical])
    elif layer in ("list_embeddings", "wide_lists"):
        named[0] = _rows(layout, [entry.name for entry in layout.lists])
    elif layer in ("wide_numeric", "numeric_embeddings"):
        named[0] = numbers
    else:
        seen = features(config, layout)
        first = "output/kernel" if not config.hidden else "hidden_0/kernel"
        if path == first:
            axis = int(config.name == "stacked")  # behind the members'
            named[axis] = seen + [("image", place) for place in range(shape[axis] - len(seen))]
    return named
