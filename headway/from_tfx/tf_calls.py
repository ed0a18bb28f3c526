"""Calls of TensorFlow and tf.Transform in a preprocessing_fn, as columns and operations of Headway.

translated("tft.bucketize", [Rows("columns['fare']"), 10], {})      # Analyzed(..., {"bucketize": {"buckets": 10}})
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from headway.from_tfx.values import FILLED, Analyzed, Part, Ref, Rows, Untranslatable, called, literal, parsed, tidy

_WRITE = "write it in a model of your own, or as a column of your own (preprocess in model.py)"
_SAME_SHAPE = frozenset(
    {"tf.squeeze", "tf.expand_dims", "tf.reshape", "tf.identity", "tf.stop_gradient", "tf.ensure_shape",
     "tf.sparse.reorder"}
)  # fmt: skip
"""Change no value of a column that has one per row."""
_ROW_BY_ROW = {
    "tf": "abs add subtract multiply divide truediv pow square sqrt exp negative sign maximum minimum round floor equal "
    "not_equal greater greater_equal less less_equal logical_and logical_or logical_not sin cos tan tanh sigmoid atan "
    "zeros_like ones_like where cast constant clip_by_value as_string",
    "tf.math": "log log1p expm1 is_nan is_finite is_inf divide_no_nan multiply_no_nan ceil rint rsqrt softplus erf "
    "logical_xor floordiv floormod mod cosh sinh asinh log_sigmoid squared_difference reciprocal_no_nan",
    "tf.strings": "lower upper strip join substr regex_replace regex_full_match length to_number as_string split",
}
_ONLY_MATH = ("floordiv", "floormod", "mod")
"""TensorFlow 1 had them beside tf.math too."""
_PARAMETERS = {
    "cast": "x dtype", "constant": "value dtype shape", "where": "condition x y",
    "clip_by_value": "t clip_value_min clip_value_max", "zeros_like": "input", "ones_like": "input", "as_string": "input",
    "lower": "input", "upper": "input", "strip": "input", "length": "input", "to_number": "input out_type",
    "substr": "input pos len", "join": "inputs", "split": "input sep", "regex_replace": "input pattern rewrite",
    "regex_full_match": "input pattern",
}  # fmt: skip
"""The first parameters of what is not called by (x, y)."""
_ANALYZERS = {
    "scale_to_z_score": "x * output_dtype", "scale_to_0_1": "x", "scale_by_min_max": "x output_min output_max",
    "bucketize": "x num_buckets epsilon", "apply_buckets": "x bucket_boundaries", "hash_strings": "strings hash_buckets",
    "compute_and_apply_vocabulary": "x * default_value top_k frequency_threshold num_oov_buckets vocab_filename file_format",
}  # fmt: skip
"""The parameters of tf.Transform's functions that are read; those after * go by name alone."""
_LIST = "text as a list of words: {shape: list, separator: ' '}"
_HINTS = {
    "tfidf": _LIST, "bag_of_words": _LIST, "ngrams": _LIST,
    "scale_to_gaussian": "say [log, standardize], or {clip: {quantiles: [0.01, 0.99]}}",
    "apply_vocabulary": "tft.compute_and_apply_vocabulary has one", "vocabulary": "tft.compute_and_apply_vocabulary has one",
}  # fmt: skip
_OTHER_HASH = "another hash function puts values into other buckets"
_TYPES = {"bytes": ("text", str | bytes), "int64": ("integers", int), "float32": ("numbers", int | float)}


def translated(name: str, args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """The value of a call.

    Raises:
        Untranslatable: there is no counterpart.
    """
    name = name.replace("tf.compat.v1.", "tf.").replace("tf.compat.v2.", "tf.")
    first = args[0] if args else next(iter(keywords.values()), None)
    second = args[1] if len(args) > 1 else None
    if name in _SAME_SHAPE or (name == "tf.cast" and isinstance(first, Analyzed)):
        return _column(first, name, analyzed=True)
    if name == "tf.SparseTensor":
        values = keywords.get("values", second)
        if isinstance(values, Part) and values.name == "values":
            return values.of
    if name in ("tf.sparse.to_dense", "tf.sparse_tensor_to_dense"):
        return _filled(first, keywords.get("default_value", second), name)
    if name == "tf.one_hot" and isinstance(first, Analyzed):
        note = "the ids are embedded here: a model of your own has to make them one-hot"
        return Analyzed(first.of, first.op, (*first.notes, note))
    if name.startswith("tf.strings.to_hash_bucket") and isinstance(first, Rows):
        return _buckets(first, "hash", keywords.get("num_buckets", second), name, _OTHER_HASH)
    return _analyzed(name, args, keywords) if name.startswith("tft.") else _row_by_row(name, args, keywords)


def row_of(value: Any, function: str) -> str:
    """An argument of a computation of rows, as Python.

    Raises:
        Untranslatable: it is neither a column, a constant nor a name of TensorFlow.
    """
    if isinstance(value, Rows | Ref):
        return value.source if isinstance(value, Rows) else str(value)
    if isinstance(value, list | tuple):
        items = "".join(f"{row_of(item, function)}, " for item in value)
        return f"[{items}]" if isinstance(value, list) else f"({items})"
    if isinstance(value, Analyzed):
        raise Untranslatable(
            f"{function}: it computes with what tft gives, which is known after the analysis only", _WRITE
        )
    if isinstance(value, Part):
        raise Untranslatable(f"{function}: it computes with a part of a tensor", _WRITE)
    if not isinstance(value, str | bytes | int | float | None):
        raise Untranslatable(f"{function}: it computes with a {type(value).__name__.lower().lstrip('_')}", _WRITE)
    return f"float({str(value)!r})" if isinstance(value, float) and not math.isfinite(value) else repr(value)


def _row_by_row(name: str, args: Sequence[Any], keywords: Mapping[str, Any]) -> Rows:
    module, _, function = name.rpartition(".")
    if module == "tf" and function in _ONLY_MATH:
        name, module = f"tf.math.{function}", "tf.math"
    known = f"{_ROW_BY_ROW.get(module, '')} {_ROW_BY_ROW['tf'] if module == 'tf.math' else ''}".split()
    if function not in known:
        raise Untranslatable(f"{name} is not known to compute each row by itself", _WRITE)
    placed, named = [*args], {key: value for key, value in keywords.items() if key != "name"}
    for key in _PARAMETERS.get(function, "x y").split()[len(placed) :]:
        if key not in named:
            break
        placed.append(named.pop(key))
    given = [row_of(value, name) for value in placed] + [f"{key}={row_of(named[key], name)}" for key in named]
    if function == "where" and len(placed) < 3:
        raise Untranslatable(f"{name} with a condition alone gives places, not one value per row", _WRITE)
    if not placed:
        raise Untranslatable(f"{name} without a first argument")
    if "axis" in named:
        raise Untranslatable(
            f"{name} with axis: a column here has one value per row, without further dimensions", _WRITE
        )
    return Rows(tidy(f"{name}({', '.join(given)})"))


def _column(value: Any, name: str, analyzed: bool = False) -> Any:
    if isinstance(value, Analyzed) and not analyzed:
        raise Untranslatable(f"{name} of what tft gives: one analysis after another", "analyse the raw column once")
    if not isinstance(value, Rows | Analyzed):
        raise Untranslatable(f"{name} of something that is not a column", _WRITE)
    return value


def _filled(value: Any, default: Any, name: str) -> Rows:
    if isinstance(value, Rows) and value.source.startswith("tf.strings.split("):
        return value
    raw = value.raw if isinstance(value, Rows) else None
    if raw is None or isinstance(default, Rows | Analyzed | Part):
        raise Untranslatable(f"{name} of something that is not a column of the examples", _WRITE)
    if raw.listed:
        raise Untranslatable(f"{name} of {raw.name!r}, a list", "a list stays one here: max_length bounds it")
    if isinstance(default, Ref) or default is None:
        default = "" if raw.type == "bytes" else 0
    called, fits = _TYPES[raw.type]
    if not isinstance(default, fits):
        raise Untranslatable(f"{name} fills {raw.name!r}, of {called}, with {default!r}", "fill it with its own type")
    return Rows(f"{FILLED}(columns[{raw.name!r}], {default!r})", raw)


def _buckets(value: Rows, op: str, count: Any, name: str, *notes: str) -> Analyzed:
    if not isinstance(count, int) or count < 2:
        raise Untranslatable(f"{name} into {count!r} buckets", "write their number, at least 2")
    return Analyzed(value, {op: {"buckets": count}}, notes)


def _analyzed(name: str, args: Sequence[Any], keywords: Mapping[str, Any]) -> Analyzed:
    function = name.removeprefix("tft.")
    if function not in _ANALYZERS:
        fix = _HINTS.get(function, "compute it in the data before, or write it in a model of your own")
        raise Untranslatable(f"{name} has no counterpart", fix)
    in_order, _, by_name = _ANALYZERS[function].partition(" * ")
    names = in_order.split()
    unread = [key for key, value in keywords.items() if key not in (*names, *by_name.split(), "name") and value]
    if len(args) > len(names) or unread:
        problem = f"{name} with {', '.join(unread) or f'{len(args)} arguments'} has no counterpart"
        raise Untranslatable(problem, "each row and word counts alike here, and a vector has one scale")
    given = {**dict(zip(names, args, strict=False)), **keywords}
    value = _column(given.get(names[0]), name)
    match function:
        case "scale_to_z_score":
            return Analyzed(value, "standardize")
        case "scale_to_0_1" | "scale_by_min_max":
            ends = {"low": given.get("output_min", 0.0), "high": given.get("output_max", 1.0)}
            return Analyzed(value, {"min_max": ends} if ends != {"low": 0.0, "high": 1.0} else "min_max")
        case "bucketize":
            return _buckets(value, "bucketize", given.get("num_buckets"), name)
        case "apply_buckets":
            return Analyzed(value, {"bucketize": {"boundaries": _boundaries(given.get("bucket_boundaries"), name)}})
        case "hash_strings":
            return _buckets(value, "hash", given.get("hash_buckets"), name, _OTHER_HASH)
    top_k, least, oov = given.get("top_k"), given.get("frequency_threshold"), given.get("num_oov_buckets") or 0
    if not all(isinstance(number, int | None) for number in (top_k, least, oov)):
        raise Untranslatable(f"{name} with numbers that are computed", "write the numbers")
    note = f"unknown values share one id of their own here, where TFX gives {given.get('default_value', -1)}"
    op = {"min_count": max(1, least or 1), "oov_buckets": max(1, oov)}
    return Analyzed(value, {"vocabulary": ({"top_k": top_k} if top_k else {}) | op}, () if oov else (note,))


def _boundaries(value: Any, name: str) -> list[float]:
    """Boundaries that are written out, also as tf.constant or [[...]]."""
    if isinstance(value, Rows) and value.source.startswith("tf.constant("):
        value = literal(called(parsed(value.source))[1][0])
    while isinstance(value, list | tuple) and len(value) == 1 and isinstance(value[0], list | tuple):
        value = value[0]
    if isinstance(value, list | tuple) and value and all(isinstance(item, int | float) for item in value):
        return list(value)
    raise Untranslatable(f"{name} with boundaries that are computed", "tft.bucketize has a counterpart: bucketize")
