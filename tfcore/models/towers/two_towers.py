"""Two towers: a vector of the user's columns, one of the item's, and their product as the score.

    score = two_towers(inputs, config, layout, seed)   # [rows, 1]: user . item + what the user's columns say alone
    vectors(model)                    # {"user": Keras model, "item": Keras model}: [rows, embedding + 1] each

`model.item` names the columns of the item; all others are the user's (of a query, a session, a context). The item's vector
ends with the item's own bias, the user's vector with 1. So for one user the product of the vectors orders items as the score
does (`tfcore.models.towers.item_index`). A list, such as a history, is the sum of its embeddings divided by the square root of
their number (Koren, "Factorization meets the neighborhood", 2008), so that a long list says more than a short one. The output
of the `hidden` layers, if there are any, is added to the sum of a side's embeddings.
"""

from typing import Any, NamedTuple

import keras
import tensorflow as tf

from headway.errors import ConfigError
from headway.messages import listed
from tfcore.heads.head import label_head
from tfcore.models.config import ModelConfig
from tfcore.models.inputs import Layout, embedded_lists, l2
from tfcore.models.layers import OffsetEmbedding

USER, ITEM = "user", "item"
_OUTPUT = "{}_vector"


class Side(NamedTuple):
    """The inputs of one tower, as indices into the numeric, the categorical and the list inputs of the layout."""

    numeric: list[int]
    categorical: list[int]
    lists: list[int]


def sides(config: ModelConfig, layout: Layout) -> dict[str, Side]:
    """Returns the inputs of both towers, by `USER` and `ITEM`.

    Raises:
        ConfigError: `model.item` names a column that gives no input, or leaves the user none.
    """
    entries = {
        "numeric": [*layout.numeric],
        "categorical": [entry.name for entry in layout.categorical],
        "lists": [entry.name for entry in layout.lists],
    }
    every = [name for names in entries.values() for name in names]
    for column in config.item:
        if not any(_of_column(name, column) for name in every):
            fix = f"there is: {', '.join(every) or 'none'}; images cannot be in a tower"
            raise ConfigError(f"{column!r} gives the model no input", where="model.item", fix=fix)

    def of(name: str) -> bool:
        return any(_of_column(name, column) for column in config.item)

    def side(wanted: bool) -> Side:
        return Side(*([place for place, name in enumerate(names) if of(name) is wanted] for names in entries.values()))

    found = {USER: side(False), ITEM: side(True)}
    if not any(found[USER]):
        raise ConfigError(
            f"all columns are the item's ({listed(every)}): there is nothing to know a user by",
            where="model.item",
            fix="leave out those of the user, or add some to columns",
        )
    return found


def _of_column(name: str, column: str) -> bool:
    return name == column or name.startswith(f"{column}__")


def two_towers(inputs: dict[str, Any], config: ModelConfig, layout: Layout, seed: int) -> keras.KerasTensor:
    """Returns each row's score, [rows, 1], without the label's bias; ConfigError for a task with several outputs."""
    if (head := label_head(layout.label)).outputs != 1:
        raise ConfigError(
            f"two_towers gives one number per row, and a {head.task.name} task needs {head.outputs}", where="model.name"
        )
    found = sides(config, layout)
    user = _vector(USER, found[USER], inputs, config, layout, seed)
    item = _vector(ITEM, found[ITEM], inputs, config, layout, seed + 104_729)
    score = keras.layers.Dot(axes=1, dtype="float32", name="product")([user, item])
    # without the lists: a history grows from one row of a user to the next, and would move them against each other
    alone = found[USER]._replace(lists=[])
    if not any(alone):
        return score
    bias = _linear("user_bias", alone, inputs, config, layout, seed)
    return keras.layers.Add(dtype="float32", name="score")([score, bias])


def vectors(model: keras.Model) -> dict[str, keras.Model]:
    """Returns the two towers of a model as Keras models, by side; each takes all inputs of the model."""
    return {
        side: keras.Model(model.input, model.get_layer(_OUTPUT.format(side)).output, name=_OUTPUT.format(side))
        for side in (USER, ITEM)
    }


def _vector(
    name: str, side: Side, inputs: dict[str, Any], config: ModelConfig, layout: Layout, seed: int
) -> keras.KerasTensor:
    """Returns the vector of a side, [rows, embedding + 1]: its summed embeddings, then the item's bias, or 1 for users."""
    parts = _parts(name, side, inputs, config, layout, seed, config.embedding)
    x = parts[0] if len(parts) == 1 else keras.layers.Add(name=f"{name}_sum")(parts)
    if config.hidden:
        wide = parts[0] if len(parts) == 1 else keras.layers.Concatenate(name=f"{name}_features")(parts)
        for number, units in enumerate(config.hidden):
            wide = _dense(f"{name}_hidden_{number}", units, config.l2, seed + number, activation="relu")(wide)
        x = keras.layers.Add(name=f"{name}_deep")(
            [x, _dense(f"{name}_deep_output", config.embedding, config.l2, seed)(wide)]
        )
    last = (
        _linear(f"{name}_bias", side, inputs, config, layout, seed) if name == ITEM else keras.ops.ones_like(x[:, :1])
    )
    return keras.layers.Concatenate(dtype="float32", name=_OUTPUT.format(name))([x, last])


def _linear(
    name: str, side: Side, inputs: dict[str, Any], config: ModelConfig, layout: Layout, seed: int
) -> keras.KerasTensor:
    """Returns one number per row, [rows, 1]: a linear function of a side's inputs, whose weights begin at 0."""
    parts = _parts(name, side, inputs, config, layout, seed, 1, initial="zeros", penalty=config.linear_l2)
    return parts[0] if len(parts) == 1 else keras.layers.Add(name=f"{name}_sum")(parts)


def _parts(
    name: str,
    side: Side,
    inputs: dict[str, Any],
    config: ModelConfig,
    layout: Layout,
    seed: int,
    width: int,
    *,
    initial: str = "uniform",
    penalty: float | None = None,
) -> list[keras.KerasTensor]:
    """Returns up to three vectors, [rows, width] each: of a side's categories, of its lists and of its numbers."""
    penalty = config.l2 if penalty is None else penalty
    parts = []
    if side.categorical:
        ids = keras.ops.take(inputs["categorical"], side.categorical, axis=1)
        sizes = [layout.categorical[column].size for column in side.categorical]
        table = OffsetEmbedding(
            sizes, width, seed=seed, initial=initial, regularizer=l2(penalty), name=f"{name}_categories"
        )
        parts.append(keras.ops.sum(table(ids), axis=1))
    if side.lists:
        embedded = embedded_lists(
            inputs,
            layout,
            side.lists,
            width,
            seed=seed,
            initial=initial,
            power=0.5,
            regularizer=l2(penalty),
            name=f"{name}_lists",
        )
        parts.append(keras.ops.sum(embedded, axis=1))
    if side.numeric:
        numbers = keras.ops.take(inputs["numeric"], side.numeric, axis=1)
        parts.append(_dense(f"{name}_numbers", width, penalty, seed, initial=initial)(numbers))
    return parts


def _dense(
    name: str, units: int, penalty: float, seed: int, *, activation: str | None = None, initial: str = "uniform"
) -> keras.layers.Dense:
    start: Any = "zeros" if initial == "zeros" else keras.initializers.GlorotUniform(seed=seed)
    return keras.layers.Dense(
        units,
        activation=activation,
        use_bias=activation is not None,
        kernel_initializer=start,
        kernel_regularizer=l2(penalty),
        name=name,
    )


def as_vectors(model: keras.Model, side: str, inputs: dict[str, Any]) -> tf.Tensor:
    """Returns the vectors of one side, `USER` or `ITEM`, for some inputs; float32 [rows, embedding + 1]."""
    return tf.cast(vectors(model)[side](inputs, training=False), tf.float32)
