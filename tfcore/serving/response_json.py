"""Predictions as the JSON that TensorFlow Serving answers.

answer("row", {"probability": array, "logit": array})       # b'{"predictions": [{"probability": 0.3, ...}]}'
"""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Form = Literal["row", "column", "classify", "regress"]


def answer(form: Form, outputs: Mapping[str, NDArray[Any]], classes: Sequence[str | int] = ()) -> bytes:
    """The body of an answer. NaN and infinities stand bare, as TensorFlow Serving writes and reads them."""
    if form == "classify":
        value: dict[str, Any] = {"result": _classified(outputs, classes)}
    elif form == "regress":
        value = {"result": outputs["prediction"].tolist()}
    else:
        listed = {name: plain(name, array) for name, array in sorted(outputs.items())}
        single = next(iter(listed.values())) if len(listed) == 1 else None
        if form == "column":
            value = {"outputs": listed if single is None else single}
        else:
            value = {"predictions": of_rows(listed) if single is None else single}
    return json.dumps(value).encode()


def of_rows(columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """One object per row."""
    names = list(columns)
    return [dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def plain(name: str, array: NDArray[Any]) -> list[Any]:
    """Return an output as JSON values: each float has the digits that give the same float32 back."""
    values: list[Any] = array.tolist()
    return _texts(values, name.endswith("_bytes")) if array.dtype == np.object_ else values


def text(value: bytes, *, encoded: bool = False) -> Any:
    """Bytes as text; {"b64": ...} where they are none, or `encoded`."""
    if not encoded:
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    return {"b64": base64.b64encode(value).decode()}


def _texts(values: list[Any], encoded: bool) -> list[Any]:
    return [_texts(v, encoded) if isinstance(v, list) else text(v, encoded=encoded) for v in values]


def _classified(outputs: Mapping[str, NDArray[Any]], classes: Sequence[str | int]) -> list[list[list[Any]]]:
    """Return [label, probability] of each class, per row; a binary label's classes are "0" and "1"."""
    if "probability" in outputs:
        return [[["0", 1.0 - value], ["1", value]] for value in outputs["probability"].tolist()]
    labels = [str(label) for label in classes]
    return [[[label, p] for label, p in zip(labels, row, strict=True)] for row in outputs["probabilities"].tolist()]
