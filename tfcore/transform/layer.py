"""The transform as a graph: the same tf.Module in the input pipeline and in the exported model.

    transform = Transform(parameters)
    inputs = transform({"carrier": RawColumn(values=..., present=None, codes=None), ...})
    inputs["numeric"], inputs["categorical"]          # float32 [rows, n], int32 [rows, m]
    inputs["lists"]                                   # int32 [rows, width of all lists], where a column holds several ids

Dictionary columns are looked up by their distinct values and then gathered by row. Integers are centred in float64,
since float32 cannot tell large ones apart.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from headway.schema.calendar_days import part_of
from tfcore.transform.fitted import Fitted
from tfcore.transform.images import Tolerant, decode_images
from tfcore.transform.parameters import TransformParameters, image_input
from tfcore.transform.raw_column import RawColumn
from tfcore.transform.together import Block, absent, categories, in_order, numbers
from tfcore.transform.vocabularies import Vocabularies

MOST_TRACED = 500
"""Of more columns no function is made: each tensor of a column would be an argument of it."""


class Transform(tf.Module):
    """The layer that turns raw columns into model inputs.

    Args:
        parameters: fitted on train statistics.
        preprocess: the user's function, when the parameters have derived columns; see `tfcore.transform.preprocess`.
        tolerant: in an input pipeline, what skips images that TensorFlow refuses; None in an export.
    """

    def __init__(
        self,
        parameters: TransformParameters,
        preprocess: Callable[[Mapping[str, RawColumn]], Mapping[str, RawColumn]] | None = None,
        tolerant: Tolerant | None = None,
    ):
        super().__init__(name="transform")
        if parameters.derived is not None and preprocess is None:
            raise ValueError("the parameters have derived columns: give the function that makes them")
        self.parameters = parameters
        self._preprocess = preprocess
        self._tolerant = tolerant
        self.user_module = getattr(preprocess, "module", None)  # so that an export finds its variables and tables
        self.vocabularies = Vocabularies(parameters.fitted)
        traced = tf.function(self._compute, autograph=False)
        # in a lambda: an attribute that is a tf.function would be saved as one that can be called
        self._traced = lambda columns: traced(columns)

    def __call__(self, columns: Mapping[str, RawColumn]) -> dict[str, tf.Tensor]:
        """The model inputs {"numeric": float32 [rows, n], "categorical": int32 [rows, m]}, in the order of the
        parameters; "lists" too where there are some: int32 [rows, width of all], -1 behind the end of a list; an
        image's pixels under `image_input` of its column. With `tolerant` and an image, "usable" bool [rows]: false for
        one that was refused."""
        blocks, named, usable = self._computed(columns)
        rows = next(iter(columns.values())).rows()
        parameters = self.parameters
        categorical = [named[entry.name] for entry in parameters.categorical]
        lists = [named[entry.name] for entry in parameters.lists]
        inputs = {
            "numeric": self._numeric(blocks, named) if parameters.numeric else tf.zeros([rows, 0], tf.float32),
            "categorical": tf.stack(categorical, 1) if categorical else tf.zeros([rows, 0], tf.int32),
        }
        if lists:
            inputs["lists"] = tf.concat(lists, 1)
        for fitted in parameters.fitted:
            if fitted.pixels is not None:
                inputs[image_input(fitted.column.name)] = named[fitted.column.name]
        return inputs | {"usable": tf.reduce_all(tf.stack(usable), 0)} if usable else inputs

    def named(self, columns: Mapping[str, RawColumn]) -> dict[str, tf.Tensor]:
        """Each model input by name: float32 or int32, [rows]; [rows, n] of vectors and of lists of categories."""
        blocks, named, _ = self._computed(columns)
        for block in blocks:
            named |= zip(block.names, tf.unstack(block.values, len(block.names)), strict=True)
        return {name: named[name] for fitted in self.parameters.fitted for name in _outputs(fitted)}

    def _computed(self, columns: Mapping[str, RawColumn]) -> tuple[list[Block], dict[str, tf.Tensor], list[tf.Tensor]]:
        """(numeric inputs that were computed together, the other inputs by name, which rows are usable)

        Traced once for columns of one form, whatever graphs ask for them.
        """
        columns = {column.name: columns[column.name] for column in self.parameters.raw}
        eager = tf.executing_eagerly() or len(columns) > MOST_TRACED
        blocks, outputs, usable = (self._compute if eager else self._traced)(columns)
        return [Block(names, values) for (_, *names), values in blocks.items()], dict(outputs), usable

    def _compute(
        self, columns: Mapping[str, RawColumn]
    ) -> tuple[dict[Any, tf.Tensor], dict[str, tf.Tensor], list[tf.Tensor]]:
        """As `_computed`, of the blocks {(place, *names): values}."""
        if self._preprocess is not None:
            columns = {**columns, **self._preprocess(columns)}
        columns = {**columns}
        for part in self.parameters.parts:  # a column of its own each, null where its source is
            source, values = columns[part.source.name], columns[part.source.name].values
            if part.part != "value":
                assert part.source.temporal is not None
                values = part_of(values, part.source.temporal, part.part)
            columns[part.name] = source._replace(values=values)
        blocks, outputs = numbers(self.parameters.fitted, columns)
        outputs |= categories(self.parameters.fitted, columns, self.vocabularies)
        usable: list[tf.Tensor] = []
        for fitted in self.parameters.fitted:
            if fitted.pixels is not None:
                pixels, good = self._image(fitted, columns[fitted.column.name])
                outputs |= pixels
                usable += [] if good is None else [good]
        return {(place, *names): values for place, (names, values) in enumerate(blocks)}, outputs, usable

    def _numeric(self, blocks: Sequence[Block], named: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """All numeric inputs, vectors included; float32 [rows, n]."""
        together = {name for block in blocks for name in block.names}
        parts: list[list[str] | tf.Tensor] = []
        for fitted in self.parameters.fitted:
            for name in _outputs(fitted) if fitted.size is None else ():
                if name in together:
                    if not parts or not isinstance(parts[-1], list):
                        parts.append([])
                    parts[-1].append(name)
                elif fitted.pixels is None or name != fitted.column.name:
                    parts.append(named[name])
        names = [name for part in parts if isinstance(part, list) for name in part]
        all_names = in_order(blocks, names) if names else None
        if all_names is not None and len(parts) == 1:
            return all_names
        columns, begin = [], 0
        for part in parts:
            if isinstance(part, list):
                assert all_names is not None
                columns.append(all_names[:, begin : begin + len(part)])
                begin += len(part)
            else:
                columns.append(part if part.shape.rank == 2 else part[:, None])
        return tf.concat(columns, 1)

    def _image(self, fitted: Fitted, column: RawColumn) -> tuple[dict[str, tf.Tensor], tf.Tensor | None]:
        """The pixels, uint8 [rows, height, width, channels], zeros for null; and, if asked, which rows are usable."""
        assert fitted.pixels is not None
        name, present, raw = fitted.column.name, column.present, fitted.ops[-1].raw
        usable = None
        if self._tolerant is None:
            decoded = decode_images(column.plain(), present, fitted.pixels, raw=raw)
        else:
            decoded, usable = self._tolerant(column.plain(), present, fitted.pixels, raw=raw)
        outputs = {name: decoded}
        if fitted.missing_indicator:
            outputs[f"{name}__missing"] = tf.cast(absent([column])[0], tf.float32)
        return outputs, usable


def _outputs(fitted: Fitted) -> list[str]:
    """The names of a column's outputs, in the order of the model's inputs; a vector's numbers are one output."""
    name = fitted.column.name
    if fitted.size is not None:
        return [name]
    names = fitted.numeric_names()
    if fitted.pixels is not None:
        return [name, *names]
    if fitted.column.length is None or fitted.pool:
        return names
    return [name, *names[fitted.column.length :]]


def sources(parameters: TransformParameters) -> dict[str, list[str]]:
    """{model input: the outputs of `Transform.named` that stand side by side in it}, in their order."""
    numeric = [
        name
        for fitted in parameters.fitted
        if fitted.size is None
        for name in _outputs(fitted)
        if fitted.pixels is None or name != fitted.column.name
    ]
    inputs = {
        "numeric": numeric,
        "categorical": [entry.name for entry in parameters.categorical],
        "lists": [entry.name for entry in parameters.lists],
    }
    images = [fitted.column.name for fitted in parameters.fitted if fitted.pixels is not None]
    return inputs | {image_input(name): [name] for name in images}
