"""Models as functions from a batch of rows to predictions: a model that was just trained, or a published SavedModel.

scorer = TrainedScorer(model, parameters)
scorer = SavedModelScorer(path, parameters.label, columns)        # Incompatible when it cannot score these rows
scorer(batch)                                                     # Scores, float32 as the model gave them
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import StoreError
from headway.schema.columns import Column
from headway.schema.tensor_name import LENGTH, PRESENT
from tfcore.evaluation.request import TrainedModel
from tfcore.export.metadata import describe_model
from tfcore.export.signatures import NULLABLE, tensor_names
from tfcore.graph.function import GraphFunction
from tfcore.heads.head import Head, UserHead, label_head
from tfcore.heads.label_parameters import LabelParameters
from tfcore.models import build
from tfcore.models.towers.item_index import ItemIndex
from tfcore.models.towers.two_towers import as_vectors
from tfcore.transform.parameters import TransformParameters
from tfcore.transform.raw_column import DTYPES

Batch = Mapping[str, tf.Tensor]


class Incompatible(Exception):
    """The error of a SavedModel that cannot score these rows; the message says why, in a sentence."""


class Scores:
    """The scores of one batch. `predictions` are float32, as the model gave them. `float64_predictions` are computed from the
    model's raw `outputs` if given: they differ between some rows that are equal in float32. `losses`, float64 [rows], is None
    except for a user's own task, where predictions do not determine a row's loss."""

    def __init__(self, head: Head, predictions: Any, outputs: Any = None, losses: Any = None):
        self.losses: NDArray[np.float64] | None = None if losses is None else np.asarray(losses, np.float64)
        self.predictions: NDArray[np.float32] = np.asarray(predictions, np.float32)
        exact = None if outputs is None else head.float64_predictions(np.asarray(outputs, np.float64))
        self.float64_predictions: NDArray[np.float64] = self.predictions.astype(np.float64) if exact is None else exact


class TrainedScorer:
    """Scores transformed rows with a trained model."""

    raw: tuple[str, ...] = ()
    """The raw columns that a batch has to hold."""
    transforms = True

    def __init__(self, trained: TrainedModel, parameters: TransformParameters):
        self._trained, self._parameters = trained, parameters
        self._users: Any = None
        self._head = label_head(parameters.label)
        self._inputs = tuple(parameters.inputs())
        self._with_losses = isinstance(self._head, UserHead)
        weights = trained.path.file / build.WEIGHTS
        self._outputs_of = build.load_trained(
            trained.config, parameters, seed=trained.seed, module=trained.module, weights=weights
        )
        self._model = self._outputs_of.model
        self._predict: GraphFunction | None = None

    @property
    def traces(self) -> int:
        return self._predict.traces if self._predict else 0

    def __call__(self, batch: Batch) -> Scores:
        names = (*self._inputs, "label", "weight") if self._with_losses else self._inputs
        inputs = {name: batch[name] for name in names}
        if self._predict is None:
            specs = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in inputs.items()}
            # not compiled: the exported graph is not either, and predictions are compared with its
            self._predict = GraphFunction(self._outputs, {"inputs": specs})
        found = self._predict(inputs=inputs)
        return Scores(self._head, found["predictions"], found["outputs"], found.get("losses"))

    def items(self) -> ItemIndex | None:
        """Returns the item index that the training wrote; None where it wrote none."""
        return ItemIndex.load(self._trained.path.file, self._model, self._trained.config, self._parameters)

    def users(self, batch: Batch) -> NDArray[np.float32]:
        """Returns the users' vectors of a two-tower model, float32 [rows, n]."""
        if self._users is None:
            self._users = tf.function(lambda inputs: as_vectors(self._model, "user", inputs), autograph=False)
        found: NDArray[np.float32] = self._users({name: batch[name] for name in self._inputs}).numpy()
        return found

    def _outputs(self, inputs: Batch) -> dict[str, tf.Tensor]:
        outputs = self._outputs_of({name: inputs[name] for name in self._inputs})
        found = {"outputs": outputs, "predictions": self._head.predictions(outputs)}
        return found | ({"losses": self._head.loss(inputs, outputs)} if self._with_losses else {})


class SavedModelScorer:
    """Scores rows of raw columns with a SavedModel, by its signature `serving_nullable`.

    Args:
        path: the SavedModel's folder.
        label: the label's parameters, of the rows to score.
        columns: the stored columns of the rows to score.

    Raises:
        StoreError: there is nothing at `path`.
        Incompatible: it cannot be loaded, a column that it needs is missing or differs, or its outputs do not fit the label.
    """

    transforms = False
    traces = 1

    def __init__(self, path: Path, label: LabelParameters, columns: Sequence[Column]):
        self._label, self._head = label, label_head(label)
        self._task = self._head.task
        self._function = _signature(path)
        self._inputs = _match(self._function, path, {column.name: column for column in columns})
        self.raw = tuple(dict.fromkeys(column for column, _ in self._inputs.values()))
        self._nullable = {column for column, part in self._inputs.values() if part == "present"}
        names = self._function.structured_outputs
        self._output = self._task.output
        if self._output not in names:
            raise Incompatible(f"it has no output {self._output!r} for a {label.task} label; it has {', '.join(names)}")
        width = names[self._output].shape.as_list()[1:]
        classes = len(label.classes or ())
        if self._task.per_class and width != [classes]:
            raise Incompatible(f"it has {width[0] if width else 1} classes, and the label has {classes}")

    def __call__(self, batch: Batch) -> Scores:
        feed = {}
        for name, (column, part) in self._inputs.items():
            present = batch[f"raw/{column}/present"]
            if part != "values":
                feed[name] = batch[f"raw/{column}/{part}"]
                continue
            feed[name] = batch[f"raw/{column}"]
            if column not in self._nullable and not bool(tf.reduce_all(present | ~batch["valid"])):
                raise Incompatible(f"column {column!r} has nulls now, which it does not take")
        try:
            outputs = self._function(**feed)
        except tf.errors.OpError as error:
            raise Incompatible(f"it fails on these rows: {error.message.splitlines()[0]}") from None
        predictions = outputs[self._output].numpy()
        if self._task.per_class:
            self._check_classes(predictions, outputs.get("class"), batch["valid"].numpy())
        logits = outputs.get("logit")
        return Scores(self._head, predictions, None if logits is None else logits.numpy()[:, None])

    def _check_classes(self, scores: NDArray[np.float32], named: tf.Tensor | None, valid: NDArray[np.bool_]) -> None:
        """Raise Incompatible if, for a valid row, the most likely class has another name in the model than in the label."""
        if named is None:
            return
        ours = np.asarray([_text(name) for name in self._label.classes or ()])
        theirs = np.asarray([_text(name) for name in named.numpy().tolist()])
        wrong = np.flatnonzero(valid & (ours[scores.argmax(1)] != theirs))
        if len(wrong):
            place = int(scores[wrong[0]].argmax())
            raise Incompatible(f"its class {place} is {theirs[wrong[0]]!r}, and the label's is {ours[place]!r}")


def _text(name: Any) -> str:
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name)


def _signature(path: Path) -> Any:
    if not path.is_dir():
        raise StoreError("there is no SavedModel", where=str(path), fix="run 'headway verify'")
    try:
        loaded = tf.saved_model.load(str(path))
        function = loaded.signatures[NULLABLE]
    except KeyError:
        raise Incompatible(f"it has no signature {NULLABLE}") from None
    except (OSError, ValueError, tf.errors.OpError) as error:
        raise Incompatible(f"it cannot be loaded: {(str(error).splitlines() or ['no reason given'])[0]}") from None
    function.loaded = loaded  # the function alone would not keep its variables alive
    return function


def _match(function: Any, path: Path, stored: Mapping[str, Column]) -> dict[str, tuple[str, str]]:
    """Returns {input: (column, "values", "present" or "length")}. Incompatible: a bad model, a column is missing or differs."""
    try:
        columns = describe_model(path).columns
    except StoreError as error:
        raise Incompatible(error.problem) from None
    inputs, names = function.structured_input_signature[1], tensor_names(columns)
    matched: dict[str, tuple[str, str]] = {}
    for column in columns:
        name, now = column.name, stored.get(column.name)
        if now is None:
            raise Incompatible(f"it needs column {name!r}, which is not among the stored ones")
        types = [DTYPES[each.type].name for each in (column, now)]
        if types[0] != types[1]:
            raise Incompatible(f"it takes column {name!r} as {types[0]}, and it is {types[1]} now")
        if column.shape != now.shape:
            shapes = [list(each.shape) for each in (column, now)]
            raise Incompatible(f"it takes column {name!r} with a row of shape {shapes[0]}, and it is {shapes[1]} now")
        parts = {"": "values"} | ({PRESENT: "present"} if column.nullable else {})
        parts |= {LENGTH: "length"} if column.is_list else {}
        tensors = {names[name] + ending: (name, part) for ending, part in parts.items()}
        matched |= {tensor: column_part for tensor, column_part in tensors.items() if tensor in inputs}
    return matched
