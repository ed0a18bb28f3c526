"""Calls of TensorFlow and tf.Transform in a preprocessing_fn, as columns and operations of Headway.

translated("tft.bucketize", [column(Raw("fare", "float32")), 10], {})      # Rows(..., op={"bucketize": {"buckets": 10}})
"""

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headway.from_tfx.values import Part, Ref, Rows, Untranslatable, computed, rows_in
from headway.schema.tensor_name import PRESENT

_WRITE = "write it in a model of your own, or as a column of your own (preprocess in model.py)"
_SAME_SHAPE = ("squeeze", "expand_dims", "reshape", "identity", "stop_gradient", "ensure_shape", "sparse.reorder")
"""Change no value of a column that has one per row."""
_ROW_BY_ROW = {
    "tf": "abs add subtract multiply divide truediv pow square sqrt exp negative sign maximum minimum round floor equal "
    "not_equal greater greater_equal less less_equal logical_and logical_or logical_not sin cos tan tanh sigmoid atan "
    "zeros_like ones_like where cast constant clip_by_value as_string",
    "tf.math": "log log1p expm1 is_nan is_finite is_inf divide_no_nan multiply_no_nan ceil rint rsqrt softplus erf "
    "logical_xor floordiv floormod mod cosh sinh asinh log_sigmoid squared_difference reciprocal_no_nan",
    "tf.strings": "lower upper strip join substr regex_replace regex_full_match length to_number as_string split",
}
_NO_TEXT = ("tf.strings.length", "tf.strings.to_number", "tf.strings.regex_full_match")
_FLOATS = ("tf.float32", "tf.float64")
_FIRST = ("condition", "indices", "input", "inputs", "sp_input", "strings", "tensor", "value", "x")
"""Parameters of the tensor, whatever the order of keywords."""
_LIST = "text as a list of words: {shape: list, separator: ' '}"
_HINTS = {
    "tfidf": _LIST, "bag_of_words": _LIST, "ngrams": _LIST,
    "scale_to_gaussian": "say [log, standardize], or {clip: {quantiles: [0.01, 0.99]}}",
    "apply_vocabulary": "tft.compute_and_apply_vocabulary has one", "vocabulary": "tft.compute_and_apply_vocabulary has one",
}  # fmt: skip


def _vocabulary(
    x: Rows, *, default_value: Any = -1, top_k: Any = None, frequency_threshold: Any = None, num_oov_buckets: Any = None,
    vocab_filename: Any = None, file_format: Any = None,
) -> tuple[Any, ...]:  # fmt: skip
    op = {"min_count": max(1, frequency_threshold or 1), "oov_buckets": max(1, num_oov_buckets or 0)}
    note = f"unknown values share one id of their own here, where TFX gives {default_value}"
    return {"vocabulary": ({"top_k": top_k} if top_k else {}) | op}, *([] if num_oov_buckets else [note])


def _hash(strings: Rows, hash_buckets: Any) -> tuple[Any, ...]:
    return {"hash": {"buckets": hash_buckets}}, "another hash function puts values into other buckets"


_FITTED: dict[str, Callable[..., tuple[Any, ...]]] = {
    "tft.scale_to_z_score": lambda x, *, output_dtype=None: ("standardize",),
    "tft.scale_to_0_1": lambda x: ("min_max",),
    "tft.scale_by_min_max": lambda x, output_min=0.0, output_max=1.0: (
        {"min_max": {"low": output_min, "high": output_max}},
    ),
    "tft.bucketize": lambda x, num_buckets, epsilon=None: ({"bucketize": {"buckets": num_buckets}},),
    "tft.apply_buckets": lambda x, bucket_boundaries: (
        {"bucketize": {"boundaries": np.ravel(bucket_boundaries).tolist()}},
    ),
    "tft.compute_and_apply_vocabulary": _vocabulary,
    "tft.hash_strings": _hash,
    "tf.strings.to_hash_bucket": lambda input, num_buckets: _hash(input, num_buckets),
    "tf.strings.to_hash_bucket_fast": lambda input, num_buckets: _hash(input, num_buckets),
    "tf.strings.to_hash_bucket_strong": lambda input, num_buckets, key=None: _hash(input, num_buckets),
}
"""Functions of a column with the parameters that are read: the operation, and what is not the same."""


def translated(name: str, args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """The value of a call.

    Raises:
        Untranslatable: there is no counterpart.
    """
    name = name.replace("tf.compat.v1.", "tf.").replace("tf.compat.v2.", "tf.")
    order = sorted(keywords, key=lambda key: (key not in _FIRST, key))  # condition, x, y
    keywords = {key: keywords[key] for key in order if key != "name" and keywords[key] is not None}
    first, second = [*args, *keywords.values(), None, None][:2]
    fitted = isinstance(first, Rows) and first.op is not None
    if name.removeprefix("tf.") in _SAME_SHAPE or (name == "tf.cast" and fitted):
        return _column(first, name, fitted=True)
    if name == "tf.one_hot" and fitted:
        note = "the ids are embedded here: a model of your own has to make them one-hot"
        return dataclasses.replace(first, notes=(*first.notes, note))
    if name in ("tf.SparseTensor", "tf.sparse.SparseTensor"):
        return _column(keywords.get("values", second), name)
    if name in ("tf.sparse.to_dense", "tf.sparse_tensor_to_dense"):
        return _filled(first, keywords.get("default_value", second), name)
    if name not in _FITTED:
        return _row_by_row(name, args, keywords)
    named = {key: _constant(value) for key, value in keywords.items() if value is not False}
    if unread := [key for key in named if key not in inspect.signature(_FITTED[name]).parameters]:
        problem = f"{name} with {', '.join(unread)} has no counterpart"
        raise Untranslatable(problem, "each row and word counts alike here, and a vector has one scale")
    given = [_constant(value) for value in args]
    if len([*rows_in([*given, *named.values()])]) > 1:
        raise Untranslatable(f"{name} with numbers that are computed has no counterpart", "write the numbers")
    try:
        op, *notes = _FITTED[name](*given, **named)
    except TypeError:  # one too many, or one is missing
        raise Untranslatable(f"{name} with these arguments has no counterpart", "give them by name") from None
    return dataclasses.replace(_column(first, name), op=op, notes=tuple(notes))


def _constant(value: Any) -> Any:
    return value.constant if isinstance(value, Rows) and not value.reads and value.op is None else value


def row_of(value: Any, function: str) -> str:
    """An argument of a computation of rows, as Python.

    Raises:
        Untranslatable: it is neither a column, a constant nor a name of TensorFlow.
    """
    if isinstance(value, Rows):
        if value.op is not None:
            problem = f"{function}: it computes with what tft gives, which is known after the analysis only"
            raise Untranslatable(problem, _WRITE)
        return value.source
    if isinstance(value, Ref):
        return str(value)
    if isinstance(value, list | tuple):
        items = "".join(f"{row_of(item, function)}, " for item in value)
        return f"[{items}]" if isinstance(value, list) else f"({items})"
    if not isinstance(value, str | bytes | int | float | None):
        kind = "part of a tensor" if isinstance(value, Part) else type(value).__name__.lower().lstrip("_")
        raise Untranslatable(f"{function}: it computes with a {kind}", _WRITE)
    return f"float({str(value)!r})" if isinstance(value, float) and not math.isfinite(value) else repr(value)


def _row_by_row(name: str, args: Sequence[Any], keywords: Mapping[str, Any]) -> Rows:
    module, _, function = name.rpartition(".")
    homes = {"tf": ("tf", "tf.math"), "tf.math": ("tf.math", "tf")}.get(module, (module,))
    home = next((home for home in homes if function in _ROW_BY_ROW.get(home, "").split()), None)
    if module == "tft":
        fix = _HINTS.get(function, "compute it in the data before, or write it in a model of your own")
        raise Untranslatable(f"{name} has no counterpart", fix)
    if home is None:
        raise Untranslatable(f"{name} is not known to compute each row by itself", _WRITE)
    given = [*args, *keywords.values()]
    if function == "where" and len(given) < 3:
        raise Untranslatable(f"{name} with a condition alone gives places, not one value per row", _WRITE)
    sources = [row_of(value, name) for value in args] + [f"{key}={row_of(keywords[key], name)}" for key in keywords]
    text = (module == "tf.strings" or function == "as_string") and name not in _NO_TEXT
    text |= function == "where" and any(isinstance(value, Rows) and value.text for value in given[1:])
    made = computed(f"{home}.{function}({', '.join(sources)})", given, text=text)
    if function == "constant":
        return dataclasses.replace(made, constant=given[0])
    if isinstance(first := given[0], Rows) and first.raw is not None:
        kept = {"int64": (*_FLOATS, "tf.int32", "tf.int64"), "float32": _FLOATS, "bytes": ()}[first.raw.type]
        if (function == "cast" and given[1] in kept) or (function == "as_string" and first.raw.type == "int64"):
            return dataclasses.replace(made, raw=first.raw, constant=first.constant)
    return made


def _column(value: Any, name: str, fitted: bool = False) -> Rows:
    if not isinstance(value, Rows):
        raise Untranslatable(f"{name} of something that is not a column", _WRITE)
    if value.op is not None and not fitted:
        raise Untranslatable(f"{name} of what tft gives: one analysis after another", "analyse the raw column once")
    return value


def _filled(value: Any, default: Any, name: str) -> Rows:
    if isinstance(value, Rows) and value.source.startswith("tf.strings.split("):
        return value
    raw = value.raw if isinstance(value, Rows) else None
    if raw is None or isinstance(default, Rows | Part):
        raise Untranslatable(f"{name} of something that is not a column of the examples", _WRITE)
    if raw.listed:
        raise Untranslatable(f"{name} of {raw.name!r}, a list", "a list stays one here: max_length bounds it")
    if isinstance(default, Ref) or default is None:
        default = "" if raw.type == "bytes" else 0
    filled = dataclasses.replace(value, needs=frozenset(), constant=default)
    default = default.encode() if isinstance(default, str) else float(default) if raw.type == "float32" else default
    if not default:  # what a missing value is anyway
        return filled
    here = f"columns[{raw.name + PRESENT!r}]"
    return dataclasses.replace(filled, source=f"tf.where({here}, {filled.source}, {row_of(default, name)})")
