"""Calls of TensorFlow and tf.Transform in a preprocessing_fn, as columns and operations of Headway.

translated(Ref("tft.bucketize"), [Raw("fare", "float32"), 10], {}, complain)      # Analyzed(..., {"bucketize": {"buckets": 10}})

`complain(problem, fix)` returns the error to raise where there is no counterpart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from headway.from_tfx.remarks import Untranslatable, names_of
from headway.from_tfx.symbols import SYMBOLS, Analyzed, Call, Filled, Part, Raw, Ref, Vocab, is_symbolic

Complain = Callable[[str, str], Untranslatable]
_WRITE = "write it in a model of your own, or as a column of your own (preprocess in model.py)"
_SAME_SHAPE = frozenset(
    {"tf.squeeze", "tf.expand_dims", "tf.reshape", "tf.identity", "tf.stop_gradient", "tf.ensure_shape",
     "tf.sparse.reorder", "tft.sparse_tensor_left_align"}
)  # fmt: skip
"""Change no value of a column that has one per row."""
_BY_ROW = names_of(
    "abs add subtract multiply divide truediv floordiv floormod mod pow square sqrt exp negative sign maximum minimum "
    "round floor equal not_equal greater greater_equal less less_equal logical_and logical_or logical_not sin cos tan "
    "tanh sigmoid atan zeros_like ones_like where cast constant clip_by_value as_string"
)
_MATH = _BY_ROW | names_of(
    "log log1p expm1 is_nan is_finite is_inf divide_no_nan multiply_no_nan ceil rint rsqrt softplus erf logical_xor "
    "floormod mod cosh sinh asinh log_sigmoid squared_difference reciprocal_no_nan"
)
_MATH_ONLY = frozenset({"floordiv", "floormod", "mod"})
"""TensorFlow 1 had them beside tf.math too."""
_STRINGS = names_of("lower upper strip join substr regex_replace regex_full_match length to_number as_string split")
_PARAMETERS = {
    "cast": ("x", "dtype"), "constant": ("value", "dtype", "shape"), "where": ("condition", "x", "y"),
    "clip_by_value": ("t", "clip_value_min", "clip_value_max"), "zeros_like": ("input",), "ones_like": ("input",),
    "as_string": ("input",), "lower": ("input",), "upper": ("input",), "strip": ("input",), "length": ("input",),
    "to_number": ("input", "out_type"), "substr": ("input", "pos", "len"), "join": ("inputs",), "split": ("input", "sep"),
    "regex_replace": ("input", "pattern", "rewrite"), "regex_full_match": ("input", "pattern"),
}  # fmt: skip
"""The first parameters of what is not called by (x, y)."""
_HASHES = frozenset({"tf.strings.to_hash_bucket_fast", "tf.strings.to_hash_bucket_strong", "tf.strings.to_hash_bucket"})
_OLD = {"tf.to_float": "tf.float32", "tf.to_double": "tf.float32", "tf.to_int64": "tf.int64", "tf.to_int32": "tf.int32"}
_HINTS = {
    "tft.scale_to_z_score_per_key": "moments per key; compute z-scores per key before, in the data",
    "tft.scale_by_min_max_per_key": "ranges per key; scale per key before, in the data",
    "tft.scale_to_0_1_per_key": "ranges per key; scale per key before, in the data",
    "tft.bucketize_per_key": "boundaries per key; bucketize the column alone, or scale per key in the data",
    "tft.apply_buckets_with_interpolation": "no counterpart; bins: 16 of model: embeds numbers by their quantiles",
    "tft.scale_to_gaussian": "say [log, standardize], or {clip: {quantiles: [0.01, 0.99]}}",
    "tft.tfidf": "text as a list of words: {shape: list, separator: ' '}",
    "tft.bag_of_words": "text as a list of words: {shape: list, separator: ' '}",
    "tft.ngrams": "text as a list of words: {shape: list, separator: ' '}",
    "tft.pca": "give the model the columns themselves",
}
_TYPES = {"bytes": "text", "int64": "integers", "float32": "numbers"}
_Z_SCORE = ("x", "elementwise", "name", "output_dtype")
_RANGE = ("x", "output_min", "output_max", "elementwise", "name")
_BUCKETS = ("x", "num_buckets", "epsilon", "weights", "elementwise", "name")
_APPLY = ("x", "deferred_vocab_filename_tensor", "default_value", "num_oov_buckets", "lookup_fn", "file_format", "name")
_VOCABULARY = (
    "x", "default_value", "top_k", "frequency_threshold", "num_oov_buckets", "vocab_filename", "weights", "labels",
    "use_adjusted_mutual_info", "min_diff_from_avg", "coverage_top_k", "coverage_frequency_threshold", "key_fn",
    "fingerprint_shuffle", "file_format", "store_frequency", "reserved_tokens", "name",
)  # fmt: skip
_CHOOSES_WORDS = {"weights", "labels", "use_adjusted_mutual_info", "coverage_top_k", "coverage_frequency_threshold",
                  "key_fn", "reserved_tokens"}  # fmt: skip


def translated(function: Ref, args: Sequence[Any], keywords: Mapping[str, Any], complain: Complain) -> Any:
    """The value of a call.

    Raises:
        Untranslatable: there is no counterpart.
    """
    name = function.path.replace("tf.compat.v1.", "tf.").replace("tf.compat.v2.", "tf.")
    name = {"tft.string_to_int": "tft.compute_and_apply_vocabulary", "tf.log": "tf.math.log"}.get(name, name)
    if name.startswith("tft."):
        return _of_transform(name, args, keywords, complain)
    if name in _OLD:
        name, args = "tf.cast", [*args[:1], Ref(_OLD[name])]
    first = args[0] if args else next(iter(keywords.values()), None)
    if name in _SAME_SHAPE or (name == "tf.cast" and isinstance(first, Analyzed)):
        return _one(first, name, complain)
    if name == "tf.SparseTensor":
        values = args[1] if len(args) > 1 else keywords.get("values")
        if isinstance(values, Part) and values.name == "values":
            return values.of
    if name in ("tf.sparse.to_dense", "tf.sparse_tensor_to_dense"):
        default = keywords.get("default_value", args[1] if len(args) > 1 else None)
        return _filled(first, default, name, complain)
    if name == "tf.one_hot" and isinstance(first, Analyzed):
        note = "the ids are embedded here: a model of your own has to make them one-hot"
        return Analyzed(first.of, first.op, (*first.remarks, note))
    if name in _HASHES and isinstance(first, SYMBOLS):
        buckets = keywords.get("num_buckets", args[1] if len(args) > 1 else None)
        return _hashed(first, buckets, complain)
    return _by_row(name, args, keywords, complain)


def _by_row(name: str, args: Sequence[Any], keywords: Mapping[str, Any], complain: Complain) -> Call:
    parts = name.split(".")
    known = (
        (len(parts) == 2 and parts[1] in _BY_ROW)
        or (len(parts) == 3 and parts[1] == "math" and parts[2] in _MATH)
        or (len(parts) == 3 and parts[1] == "strings" and parts[2] in _STRINGS)
    )
    if not name.startswith("tf.") or not known:
        raise complain(f"{name} is not known to compute each row by itself", _WRITE)
    keywords = {key: value for key, value in keywords.items() if key != "name"}
    args, keywords = _in_order(parts[-1], args, keywords)
    fits_a_row([*args, *keywords.values()], lambda problem, fix: complain(f"{name}: {problem}", fix))
    if parts[-1] == "where" and len(args) < 3:
        raise complain(f"{name} with a condition alone gives places, not one value per row", _WRITE)
    if not args:
        raise complain(f"{name} without a first argument", "")
    if "axis" in keywords:
        raise complain(f"{name} with axis: a column here has one value per row, without further dimensions", _WRITE)
    if len(parts) == 2 and parts[1] in _MATH_ONLY:
        name = f"tf.math.{parts[1]}"
    return Call(name, tuple(args), tuple(keywords.items()))


def _in_order(name: str, args: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments that were given by name, in their places as far as those are known."""
    placed, named = [*args], dict(keywords)
    for key in _PARAMETERS.get(name, ("x", "y"))[len(placed) :]:
        if key not in named:
            break
        placed.append(named.pop(key))
    return placed, named


def fits_a_row(values: Iterable[Any], complain: Complain) -> None:
    """Check that a computation of a row can be written with these values: columns, constants, names of TensorFlow.

    Raises:
        Untranslatable: it cannot.
    """
    for value in values:
        if isinstance(value, list | tuple):
            fits_a_row(value, complain)
        elif isinstance(value, Analyzed | Vocab):
            raise complain("it computes with what tft gives, which is known after the analysis only", _WRITE)
        elif isinstance(value, Part):
            raise complain("it computes with a part of a tensor", _WRITE)
        elif isinstance(value, Ref) and not value.path.startswith("tf."):
            raise complain(f"{value.path.removeprefix('builtins.')} is not read", "write the value itself")
        elif not isinstance(value, (*SYMBOLS, Ref, str, bytes, int, float, bool, type(None))):
            raise complain(f"it computes with a {type(value).__name__.lower().lstrip('_')}", _WRITE)


def _one(value: Any, name: str, complain: Complain) -> Any:
    if not isinstance(value, (*SYMBOLS, Analyzed)):
        raise complain(f"{name} of something that is not a column", _WRITE)
    return value


def _filled(value: Any, default: Any, name: str, complain: Complain) -> Any:
    if isinstance(value, Call) and value.function == "tf.strings.split":
        return value
    if not isinstance(value, Raw) or is_symbolic(default):
        raise complain(f"{name} of something that is not a column of the examples", _WRITE)
    if value.listed:
        raise complain(f"{name} of {value.name!r}, a list", "a list stays one here: max_length bounds it")
    if isinstance(default, Ref) or default is None:
        default = "" if value.type == "bytes" else 0
    fits = {"bytes": (str, bytes), "int64": (int,), "float32": (int, float)}[value.type]
    if not isinstance(default, fits):
        raise complain(
            f"{name} fills {value.name!r}, of {_TYPES[value.type]}, with {default!r}", "fill it with its own type"
        )
    return Filled(value, default)


def _hashed(value: Any, buckets: Any, complain: Complain) -> Analyzed:
    if not isinstance(buckets, int) or buckets < 2:
        raise complain(f"hash buckets of {buckets!r}", "write their number, at least 2")
    return Analyzed(value, {"hash": {"buckets": buckets}}, ("another hash function puts values into other buckets",))


def _of_transform(name: str, args: Sequence[Any], keywords: Mapping[str, Any], complain: Complain) -> Any:
    def bound(names: Sequence[str], positional: int = 99) -> dict[str, Any]:
        if len(args) > min(positional, len(names)) or {*keywords} - {*names}:
            unknown = ", ".join(sorted({*keywords} - {*names})) or f"{len(args)} arguments"
            raise complain(f"{name} with {unknown}", _WRITE)
        return {**dict(zip(names, args, strict=False)), **keywords}

    def column(given: dict[str, Any]) -> Any:
        value = given.get(first)
        if isinstance(value, Analyzed | Vocab):
            raise complain(f"{name} of what tft gives: one analysis after another", "analyse the raw column once")
        if not isinstance(value, SYMBOLS):
            raise complain(f"{name} of something that is not a column", _WRITE)
        if given.get("elementwise"):
            raise complain(f"{name} with elementwise", "a vector has one scale for all of its places here; split it up")
        if given.get("weights") is not None:
            raise complain(f"{name} with weights", "each row counts once here")
        return value

    first = "x"
    if name == "tft.scale_to_z_score":
        return Analyzed(column(bound(_Z_SCORE)), "standardize")
    if name == "tft.scale_to_0_1":
        return Analyzed(column(bound(("x", "elementwise", "name"))), "min_max")
    if name == "tft.scale_by_min_max":
        given = bound(_RANGE)
        ends = {"low": given.get("output_min", 0.0), "high": given.get("output_max", 1.0)}
        return Analyzed(column(given), {"min_max": ends} if ends != {"low": 0.0, "high": 1.0} else "min_max")
    if name == "tft.bucketize":
        given = bound(_BUCKETS)
        buckets = given.get("num_buckets")
        if not isinstance(buckets, int) or buckets < 2:
            raise complain(f"{name} into {buckets!r} buckets", "write their number, at least 2")
        return Analyzed(column(given), {"bucketize": {"buckets": buckets}})
    if name == "tft.apply_buckets":
        given = bound(("x", "bucket_boundaries", "name"))
        boundaries = _numbers(given.get("bucket_boundaries"))
        if boundaries is None:
            raise complain(f"{name} with boundaries that are computed", "tft.bucketize has a counterpart: bucketize")
        return Analyzed(column(given), {"bucketize": {"boundaries": boundaries}})
    if name in ("tft.compute_and_apply_vocabulary", "tft.vocabulary"):
        given = bound(_VOCABULARY, 1)
        op, notes = _vocabulary(name, given, complain)
        return (Vocab if name == "tft.vocabulary" else Analyzed)(column(given), op, notes)
    if name == "tft.apply_vocabulary":
        given = bound(_APPLY)
        value, vocab = column(given), given.get("deferred_vocab_filename_tensor")
        if not isinstance(vocab, Vocab) or vocab.of != value:
            raise complain(
                f"{name} with the vocabulary of another column", "each column has a vocabulary of its own here"
            )
        op, notes = _vocabulary(name, given, complain)
        return Analyzed(
            value, {"vocabulary": vocab.op["vocabulary"] | {"oov_buckets": op["vocabulary"]["oov_buckets"]}}, notes
        )
    if name == "tft.hash_strings":
        first = "strings"
        given = bound(("strings", "hash_buckets", "key", "name"))
        return _hashed(column(given), given.get("hash_buckets"), complain)
    if name == "tft.sparse_tensor_to_dense_with_shape":
        given = bound(("x", "shape", "default_value"))
        return _filled(given.get("x"), given.get("default_value"), name, complain)
    fix = _HINTS.get(name, "compute it in the data before, or write it in a model of your own")
    raise complain(f"{name} has no counterpart", fix)


def _vocabulary(name: str, given: Mapping[str, Any], complain: Complain) -> tuple[dict[str, Any], tuple[str, ...]]:
    if chosen := sorted(key for key in _CHOOSES_WORDS if given.get(key)):
        raise complain(f"{name} with {', '.join(chosen)}", "words are chosen by their train rows here")
    top_k, least = given.get("top_k"), given.get("frequency_threshold")
    oov = given.get("num_oov_buckets") or 0
    if not all(value is None or isinstance(value, int) for value in (top_k, least, oov)):
        raise complain(f"{name} with numbers that are computed", "write the numbers")
    op = {"min_count": max(1, least or 1), "oov_buckets": max(1, oov)}
    notes: tuple[str, ...] = ()
    if not oov:
        notes = (f"unknown values share one id of their own here, where TFX gives {given.get('default_value', -1)}",)
    return {"vocabulary": ({"top_k": top_k} if top_k else {}) | op}, notes


def _numbers(value: Any) -> list[float] | None:
    """Boundaries that are written out, also as tf.constant or [[...]]."""
    if isinstance(value, Call) and value.function == "tf.constant":
        value = value.args[0]
    if isinstance(value, list | tuple) and len(value) == 1 and isinstance(value[0], list | tuple):
        value = value[0]
    if isinstance(value, list | tuple) and value and all(isinstance(item, int | float) for item in value):
        return list(value)
    return None
