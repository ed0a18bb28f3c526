"""Warm-up requests of a SavedModel, which TensorFlow Serving sends to it before it answers others.

    requests = warm_up_requests(signatures, columns, answers)       # answers: whether the model takes a request
    write_warm_up(Path("saved_model"), requests)                    # assets.extra/tf_serving_warmup_requests

The first call of a signature costs most of a second. The file holds a request of one row to each signature as a PredictionLog in
a TFRecord; the messages are written by hand, since tensorflow-serving-api would be the only user of its version of grpc. The
values are made up (zeros, empty texts, a black image), so that no row of the training data travels with the model. A server
does not load a model that refuses such a request, so only those are written that it answers. A model without code of the user's
answers them all; the first calls, which take a quarter of a second, are left to the replay.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.records.tfrecord import frame
from headway.records.wire import field
from headway.schema.columns import Column
from tfcore.export.signatures import Signature, Tensor
from tfcore.transform.fitted import FittedOp

FILE = Path("assets.extra") / "tf_serving_warmup_requests"
_PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b550000"
    "000a4944415478da6360000000020001e527defc0000000049454e44ae426082"
)
"""One black pixel."""
Arrays = dict[str, NDArray[Any]]


def warm_up_requests(
    signatures: Mapping[str, Signature],
    columns: Sequence[Column],
    answers: Callable[[str, Arrays], object] | None,
    images: Mapping[str, bytes] | None = None,
) -> dict[str, Arrays]:
    """Return {signature: inputs for one row} of the signatures that the model answers.

    Args:
        answers: called with a signature's name and such inputs; raises tf.errors.OpError where the model refuses them. None:
            it refuses none.
        images: what stands for an image, of each column that holds some; see `black_image`.
    """
    requests: dict[str, Arrays] = {}
    for name, signature in signatures.items():
        inputs = {tensor.name: _made_up(tensor, columns, images or {}) for tensor in signature.inputs}
        try:
            if answers is not None:
                answers(name, inputs)
        except tf.errors.OpError:
            continue
        requests[name] = inputs
    return requests


def black_image(op: FittedOp) -> bytes:
    """A value that a fitted image operation takes."""
    return bytes(math.prod(op.pixels or ())) if op.raw else _PNG


def write_warm_up(saved_model: Path, requests: Mapping[str, Arrays]) -> None:
    """Write the requests, a record each."""
    path = saved_model / FILE
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(frame(prediction_log(name, inputs)) for name, inputs in requests.items()))


def prediction_log(signature: str, inputs: Arrays) -> bytes:
    """A tensorflow.serving.PredictionLog of a PredictRequest; the server fills in the model's name."""
    spec = field(field(signature.encode(), _tag(3)), _tag(1))  # ModelSpec.signature_name
    entries = []
    for name, array in sorted(inputs.items()):
        tensor = tf.make_tensor_proto(array).SerializeToString(deterministic=True)
        entries.append(field(field(name.encode(), _tag(1)) + field(tensor, _tag(2)), _tag(2)))
    request = spec + b"".join(entries)
    return field(field(request, _tag(1)), _tag(6))  # PredictLog.request, PredictionLog.predict_log


def _tag(number: int) -> bytes:
    """The tag of a length-delimited field."""
    return bytes([number << 3 | 2])


def _made_up(tensor: Tensor, columns: Sequence[Column], images: Mapping[str, bytes]) -> NDArray[Any]:
    shape = [1 if size is None else size for size in tensor.shape]
    if tensor.dtype != "string":
        return np.full(shape, tensor.default or 0, tensor.dtype)
    value = images.get(tensor.column, b"") if tensor.column else _example(columns, images)
    array = np.empty(shape, object)
    array.fill(value)  # np.full would cut zero bytes off the end
    return array


def _example(columns: Sequence[Column], images: Mapping[str, bytes]) -> bytes:
    """A tf.Example with a value in each column."""
    example = tf.train.Example()
    for column in columns:
        feature = example.features.feature[column.name]
        count = column.length or 1
        if column.type == "int64":
            feature.int64_list.value[:] = [0] * count
        elif column.type == "float32":
            feature.float_list.value[:] = [0.0] * count
        else:
            feature.bytes_list.value[:] = [images.get(column.name, b"")] * count
    return bytes(example.SerializeToString(deterministic=True))
