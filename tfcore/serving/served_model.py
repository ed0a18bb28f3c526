"""A version of a model, loaded to answer requests.

model = ServedModel(Path("store/models/flights/3/saved_model"), "flights", 3)
model.warm_up()
rows = model.reader("serving_default").of_instances([{"dep_delay": 12.0, "carrier": "UA"}])
model.call(rows.signature, rows.arrays | rows.arguments)       # {"probability": array, "logit": array}
"""

import contextlib
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.errors import StoreError
from headway.process import owned
from tfcore.export.metadata import ModelMetadata, describe_model
from tfcore.export.predictor import WIDE
from tfcore.export.signatures import DEFAULT, Signature, Tensor
from tfcore.runtime.tf_import import startup
from tfcore.serving.refusals import RequestError, RequestLimits
from tfcore.serving.request_json import SignatureReader, time_text

with startup():
    import tensorflow as tf
    from google.protobuf import json_format
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    from tfcore.graph.op_errors import why

SIGNATURES = Path("assets.extra") / "signatures.json"
WARM_ROWS = (1, 2)
"""Batches that warm a model up: the first calls of a signature cost most of a second."""


class ServedModel:
    """One SavedModel in memory. Safe to call from several threads.

    Raises:
        StoreError: the folder holds no SavedModel of Headway's that can be loaded.
    """

    def __init__(self, path: Path, name: str, version: int):
        self.name, self.version, self.path = name, version, path
        self.metadata: ModelMetadata = describe_model(path)
        self.signatures = _signatures(path)
        if owned() and len(self.metadata.columns) > WIDE:
            tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        try:
            self._model = tf.saved_model.load(str(path))
            self._functions = {signature: self._model.signatures[signature] for signature in self.signatures}
        except (OSError, ValueError, KeyError, tf.errors.OpError) as error:
            raise StoreError(f"cannot be loaded: {str(error).splitlines()[0]}", where=str(path)) from None

    def reader(self, signature: str, limits: RequestLimits = RequestLimits()) -> SignatureReader:
        """Return the reader of requests to a signature.

        Raises:
            RequestError: the model has none of that name.
        """
        if signature not in self.signatures:
            fix = f"there is: {', '.join(self.signatures)}"
            raise RequestError(f"there is no signature {signature!r}", where="signature_name", fix=fix)
        return self._reader(signature, limits)

    @functools.lru_cache(maxsize=64)  # noqa: B019 - lives as long as the model, which a reader belongs to
    def _reader(self, signature: str, limits: RequestLimits) -> SignatureReader:
        return SignatureReader(signature, self.signatures[signature], self.metadata.columns, limits)

    def call(self, signature: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """A signature's outputs, [rows, ...] each.

        Raises:
            RequestError: the graph refuses the values, such as an image that is damaged.
        """
        try:
            return {name: value.numpy() for name, value in self._functions[signature](**_tensors(arrays)).items()}
        except (tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError, tf.errors.DataLossError) as error:
            raise RequestError(_reason(error), where=signature, fix="change the values") from None

    def warm_up(self) -> None:
        """Call each signature with small batches, so that the first request does not wait for it.

        Raises:
            StoreError: the model fails, whatever it is asked.
        """
        for name, signature in self.signatures.items():
            for rows in WARM_ROWS:
                arrays = {tensor.name: _nothing(tensor, rows) for tensor in signature.inputs}
                with contextlib.suppress(RequestError):  # an empty image or Example is refused, which warms up as well
                    try:
                        self.call(name, arrays)
                    except tf.errors.OpError as error:
                        raise StoreError(f"{name} fails: {_reason(error)}", where=str(self.path)) from None

    @functools.cached_property
    def times(self) -> dict[str, str]:
        """What a request sends for each date and time, by its input."""
        units = {column.name: column.temporal for column in self.metadata.columns if not column.shape}
        inputs = self.signatures[DEFAULT].inputs
        return {tensor.name: time_text(unit) for tensor in inputs if (unit := units.get(tensor.column or ""))}

    @functools.cached_property
    def signature_def(self) -> dict[str, Any]:
        """The SavedModel's own description of its signatures, as TensorFlow Serving's metadata has it."""
        saved = SavedModel.FromString((self.path / "saved_model.pb").read_bytes())
        graph = saved.meta_graphs[0]
        return {
            name: json_format.MessageToDict(
                definition, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
            for name, definition in sorted(graph.signature_def.items())
        }


def _signatures(path: Path) -> dict[str, Signature]:
    try:
        described = json.loads((path / SIGNATURES).read_text(encoding="utf-8"))
        return {name: Signature.model_validate(signature) for name, signature in described.items()}
    except FileNotFoundError:
        fix = "train and export one with this Headway"
        raise StoreError(f"the model has no {SIGNATURES}", where=str(path), fix=fix) from None
    except (ValueError, AttributeError) as error:
        raise StoreError(f"is damaged: {str(error).splitlines()[0]}", where=str(path / SIGNATURES)) from None


def _tensors(arrays: Mapping[str, NDArray[Any]]) -> dict[str, tf.Tensor]:
    return {
        name: tf.constant(array, tf.string if array.dtype == np.object_ else None) for name, array in arrays.items()
    }


def _shape(tensor: Tensor, rows: int) -> list[int]:
    return [rows if place == 0 else size or 1 for place, size in enumerate(tensor.shape)]


def _nothing(tensor: Tensor, rows: int) -> NDArray[Any]:
    """Return placeholder values for a tensor: zeros or empty texts, or its default."""
    shape = _shape(tensor, rows)
    if tensor.dtype == "string":
        return np.full(shape, b"", object)
    return np.full(shape, tensor.default or 0, tensor.dtype)


def _reason(error: tf.errors.OpError) -> str:
    """Extract TensorFlow's reason from the error, without the places in the graph."""
    text = why(error).rpartition("<stack traces unavailable> ")[2].rpartition("assertion failed: ")[2]
    return text.strip("[] ").replace("] [", " ")  # an Assert prints each of its values in brackets
