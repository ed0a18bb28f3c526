"""Checks in a separate process that an exported model predicts the same as in training.

    python -I replay.py < request.json          # one JSON line in, one JSON line out

The script may import only what any server has: TensorFlow, NumPy and the standard library. Importing Keras or Headway fails. It
imports TensorFlow first and then waits for its request, so that it can be started while a model still trains. It loads the
SavedModel and reads raw rows from shards with plain TensorFlow. `serving_nullable` gets the rows as tensors, `serve_examples` as
new tf.Examples. `serving_default` gets only the rows that need no companion input (c__present, c__length). All outputs are
compared with the expected predictions. Each signature is called twice: with all rows in one batch, then in uneven batches, some
of a single row. This finds a model that draws random numbers, or whose answer for a row depends on the other rows of the
batch.

Request:
    saved_model     folder of the SavedModel, best another folder than the one it was saved in
    spec            {feature: {"kind": ..., "dtype": ...}} of the shards' records
    columns         [{"name", "tensor", "dtype", "nullable", "dictionary", "shape"}] of the raw columns; shape is [] for one
                    value a row, [n] for n, [null] for any number
    shards          [{"path", "rows"}]: a shard's file, and the number of its first rows to replay
    expected        .npy file, the predictions for those rows in order, [rows] or [rows, classes]
    output          the signature output to compare
    bound           the largest |difference| / max(1, |expected|, standard deviation of expected) that passes
    measured        the batch sizes, in rows, whose calls are timed: [1, 64]
    timed_seconds   how long each measurement may take

Answer: {"ok", "rows", "largest_difference", "bound", "signatures": {name: largest difference}, "worst": {...}, "cause",
"load_seconds", "serving": {"latency": {rows: {"p50_ms", "p99_ms", "calls"}}}, "tensorflow"}, or {"error": sentence}.
"cause" is null when all is well; else "other" (the export differs from the training), "random" (a second call with the same
rows gives something else) or "batch" (a row's answer depends on the other rows), and "inputs" then names the outputs of the
`transform` signature that behave so.

Importing this file changes nothing in the process that imports it.
"""

import gc
import json
import os
import signal
import sys
import time
from typing import Any

FOREIGN = ("keras", "tf_keras", "headway", "tfcore", "beam_jobs", "flows")

if __name__ == "__main__":
    # importing one fails; TensorFlow takes Keras along where it is there, and has done so where this process is a fork
    for _name in {*FOREIGN, *(name for name in sys.modules if name.split(".")[0] in FOREIGN)}:
        sys.modules[_name] = None  # type: ignore[assignment]
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the bound holds on a CPU; an accelerator rounds otherwise
    gc.disable()  # it would look for seconds through what an import and a loaded model are made of, and find nothing

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

LISTS = {"int64": "int64_list", "float32": "float_list", "string": "bytes_list", "bytes": "bytes_list"}
LEAST_CALLS, MOST_CALLS = 3, 300
"""The least and the most timed calls of a latency measurement; the calls of a wide model may take longer than its time."""


def main():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # of a supervisor: the parent decides, and ends this one itself
    answers = os.fdopen(os.dup(1), "w")  # what else prints to stdout must not be taken for the answer
    os.dup2(2, 1)
    warm_up()
    line = sys.stdin.readline()
    if not line.strip():
        return 0  # the parent went away, or had nothing to ask
    try:
        answer = replay(json.loads(line))
        answer = {"error": _foreign()} if _foreign() else answer
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:2000]}"}
    answers.write(json.dumps(answer) + "\n")
    answers.close()
    return 0


def warm_up():
    """Call a first function and read a first dataset, for which TensorFlow sets up its devices and threads. This takes time
    only once, and here the model still trains."""
    once = tf.function(lambda texts: tf.strings.length(texts), input_signature=[tf.TensorSpec([None], tf.string)])
    once(tf.constant([""]))
    for _ in tf.data.TFRecordDataset([]):
        pass


def _foreign():
    """Returns an error message if the model made this process import Keras or Headway, else None."""
    imported = sorted(name for name in sys.modules if name.split(".")[0] in FOREIGN and sys.modules[name] is not None)
    return f"the exported model made the process import {', '.join(imported)}" if imported else None


def replay(request):
    """Returns the answer to a request; the module's docstring describes both."""
    started = time.perf_counter()
    model = tf.saved_model.load(request["saved_model"])
    seconds = time.perf_counter() - started
    rows = read_rows(request)
    expected = np.load(request["expected"], allow_pickle=False)
    inputs, every = named_inputs(rows, request["columns"]), np.arange(len(expected))
    signature, limit = model.signatures["serving_nullable"], request.get("timed_seconds", 0.0)
    latency = {str(n): measure_latency(signature, inputs, n, limit) for n in request.get("measured", ())}
    plain, simple = without_companions(inputs, request["columns"])
    calls = {
        "serving_nullable": (inputs, every),
        "serving_default": (plain, simple),
        "serve_examples": ({"examples": np.array(as_examples(rows, request["columns"]), object)}, every),
    }
    output, spread = request["output"], float(np.nanstd(expected)) if np.isfinite(expected).any() else 0.0
    worst, largest = None, {}
    for name, (arrays, picked) in calls.items():
        if not len(picked):
            continue
        signature = model.signatures[name]
        cut = in_batches(signature, arrays, uneven_batches(len(picked)))
        wanted, largest[name] = expected[picked], 0.0
        for batches, answer in (("one", call(signature, arrays)), ("uneven", cut)):
            found = answer[output]
            if found.shape != wanted.shape:
                return {"error": f"{name} gives {output} of shape {found.shape}, expected {wanted.shape}"}
            # other batches go through other kernels, whose rounding grows with the outputs' range
            difference = scaled_difference(found, wanted, max(1.0, spread))
            row = int(difference.reshape(len(wanted), -1).max(1).argmax())
            largest[name] = max(largest[name], float(difference.max()))
            if worst is None or float(difference.max()) > worst["difference"]:
                worst = {
                    "signature": name,
                    "output": output,
                    "batches": batches,
                    "row": int(picked[row]),
                    "difference": float(difference.max()),
                    "expected": np.ravel(wanted[row])[:20].tolist(),
                    "found": np.ravel(found[row])[:20].tolist(),
                    "columns": {
                        column: _json_value(values[picked[row]], present[picked[row]])
                        for column, (values, present) in rows.items()
                    },
                }
    answer = {
        "ok": max(largest.values()) <= request["bound"],
        "rows": len(every),
        "largest_difference": max(largest.values()),
        "bound": request["bound"],
        "signatures": largest,
        "worst": worst,
        "cause": None,
        "load_seconds": seconds,
        "serving": {"latency": latency},
        "tensorflow": tf.__version__,
    }
    if worst is not None and not answer["ok"]:
        answer |= cause(model, worst["signature"], calls, request | {"output": worst["output"]})
    return answer


def measure_latency(signature, arrays, rows, limit):
    """Calls a signature with `rows` rows: 3 times to warm up, then for `limit` seconds, but LEAST_CALLS to MOST_CALLS times.
    Returns {"p50_ms", "p99_ms", "calls"}: percentiles of the time of a call, and the number of timed calls."""
    count = len(next(iter(arrays.values())))
    picked = np.arange(rows) % count
    cut = {key: value[picked] for key, value in arrays.items()}
    for _ in range(3):
        call(signature, cut)
    seconds: list[float] = []
    until = time.perf_counter() + limit
    while len(seconds) < LEAST_CALLS or (len(seconds) < MOST_CALLS and time.perf_counter() < until):
        started = time.perf_counter()
        call(signature, cut)
        seconds.append(time.perf_counter() - started)
    p50, p99 = (1000 * float(np.percentile(seconds, share)) for share in (50, 99))
    return {"p50_ms": p50, "p99_ms": p99, "calls": len(seconds)}


def cause(model, name, calls, request):
    """Returns {"cause", "inputs"}, which the module's docstring describes, for the signature `name`. `calls` is {signature:
    (its inputs, the indices of the rows in them)}."""
    output = request["output"]
    # the model's inputs are told apart first: where one of them is to blame, so is the preprocess
    if "transform" in model.signatures:
        causes = {
            key: kind
            for key, kind in behaviour(model.signatures["transform"], calls["serving_nullable"], request).items()
            if kind is not None
        }
        if causes:
            kind = "random" if "random" in causes.values() else "batch"
            return {"cause": kind, "inputs": sorted(key for key, value in causes.items() if value == kind)}
    kind = behaviour(model.signatures[name], calls[name], request).get(output)
    return {"cause": kind or "other", "inputs": []}


def behaviour(signature, sample, request):
    """Returns {output: "random" if a second call with the same rows changes it, "batch" if other batches do, else None}."""
    inputs, picked = sample
    first, second = (call(signature, inputs) for _ in range(2))
    cut = in_batches(signature, inputs, uneven_batches(len(picked)))

    def far(a, b):
        if a.dtype.kind not in "fiu" or a.shape != b.shape:
            return not np.array_equal(a, b)
        least = max(1.0, float(np.nanstd(a.astype(np.float64)))) if a.size else 1.0
        return bool((scaled_difference(a, b, least) > request["bound"]).any())

    return {
        key: "random" if far(first[key], second[key]) else "batch" if far(first[key], cut[key]) else None
        for key in first
    }


def uneven_batches(rows):
    """Yields (start, stop) of each batch of the rows; batches of a single row alternate with batches of 2, 6, 18, ... rows."""
    start, size = 0, 2
    while start < rows:
        for stop in (start + 1, min(start + 1 + size, rows)):
            if stop > start:
                yield start, stop
            start = stop
        size *= 3


def call(signature, arrays):
    """Call a signature with arrays and return {output: array}."""
    # cut and kept in NumPy: a slice of a tensor costs as much as fifteen of an array, and there may be thousands
    tensors = {key: tf.constant(value, tf.string if value.dtype == object else None) for key, value in arrays.items()}
    return {key: value.numpy() for key, value in signature(**tensors).items()}


def in_batches(signature, arrays, batches):
    """Call a signature once for each (start, stop) of `batches`, with these rows; return the joined {output: array}."""
    parts = [call(signature, {key: value[a:b] for key, value in arrays.items()}) for a, b in batches]
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def scaled_difference(found, expected, least=1.0):
    """Returns |found - expected| / max(least, |expected|), 0 where both are NaN and infinite where one of them is."""
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        difference = np.abs(found - expected) / np.maximum(least, np.abs(expected))
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    return np.where(same, 0.0, np.where(np.isnan(difference), np.inf, difference))


def read_rows(request):
    """Returns {column: (values, present)} of the shards' first rows, in order. `values` are float32, int64 or object,
    [rows] or [rows, n]; of a list column, an object array [rows] of arrays. `present` is bool [rows]."""
    parts = [read_groups(request, shard["path"], shard["rows"]) for shard in request["shards"] if shard["rows"]]
    return {
        column["name"]: tuple(np.concatenate([part[column["name"]][i] for part in parts]) for i in range(2))
        for column in request["columns"]
    }


def read_groups(request, path, rows):
    """Returns the first `rows` rows of one shard in the form of `read_rows`. ValueError: the shard has fewer rows."""
    columns: dict[str, tuple[list[np.ndarray], list[np.ndarray]]] = {
        column["name"]: ([], []) for column in request["columns"]
    }
    read = 0
    for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
        features = tf.train.Example.FromString(record).features.feature
        parsed = {name: _values(features[name], entry["dtype"]) for name, entry in request["spec"].items()}
        for column in request["columns"]:
            name = column["name"]
            if column["dictionary"]:
                words = np.append(parsed[f"{name}/dict"], b"")  # code 0 of a record of nulls
                values = words[parsed[f"{name}/codes"]]
            else:
                values = parsed[f"{name}/values" if column["shape"] == [None] else name]
            if column["shape"]:
                lengths = parsed.get(f"{name}/lengths", column["shape"][0])
                values = _rows_of(values, lengths, column["shape"])
            present = parsed[f"{name}/present"] != 0 if column["nullable"] else np.ones(len(values), bool)
            columns[name][0].append(values)
            columns[name][1].append(present)
        read += len(present)
        if read >= rows:
            break
    if read < rows:
        raise ValueError(f"{path} holds {read} rows, fewer than the {rows} to replay")
    return {name: tuple(np.concatenate(arrays)[:rows] for arrays in pair) for name, pair in columns.items()}


def _values(feature, dtype):
    """Returns the values of a tf.train.Feature as an array."""
    return np.array(getattr(feature, LISTS[dtype]).value, _numpy_type("bytes" if dtype == "string" else dtype))


def _rows_of(values, lengths, shape):
    """Returns flat `values` cut into rows: of a vector column as [rows, n], of a list column as an object array of arrays."""
    if shape != [None]:
        return values.reshape([-1, *shape])
    rows = np.empty(len(lengths), object)
    rows[:] = np.split(values, np.cumsum(lengths)[:-1]) if len(lengths) else []
    return rows


def _numpy_type(dtype):
    return object if dtype == "bytes" else dtype


def named_inputs(rows, columns):
    """Returns {input: array} for the signature `serving_nullable`; an array of texts has the dtype object."""
    inputs = {}
    for column in columns:
        values, present = rows[column["name"]]
        if column["shape"] == [None]:
            lengths = np.array([len(value) for value in values], np.int64)
            inputs[column["tensor"] + "__length"] = lengths
            longest = max(1, lengths.max(initial=0))
            padded = np.full(
                [len(values), longest], b"" if column["dtype"] == "bytes" else 0, _numpy_type(column["dtype"])
            )
            for row, value in enumerate(values):
                padded[row, : len(value)] = value
            values = padded
        inputs[column["tensor"]] = values
        if column["nullable"]:
            inputs[column["tensor"] + "__present"] = present
    return inputs


def without_companions(inputs, columns):
    """Returns the `serving_default` inputs of the rows that need no `__present` or `__length`, and the rows' indices.

    In `serving_default` NaN in a nullable float column is a null, all else is present, and all values of a list count."""
    values, simple = {}, np.ones(len(inputs[columns[0]["tensor"]]), bool)
    for column in columns:
        name = column["tensor"]
        cells = inputs[name]
        good = np.ones(len(cells), bool)
        present = inputs[name + "__present"] if column["nullable"] else good
        if column["shape"] == [None]:
            good = present & (inputs[name + "__length"] == cells.shape[1])
        elif column["nullable"] and column["dtype"] == "float32":
            nan = np.isnan(cells).reshape(len(cells), -1).all(1)
            good = ~(present & nan)
            cells = np.where(present.reshape([-1] + [1] * (cells.ndim - 1)), cells, np.float32("nan"))
        else:
            good = present
        simple = simple & good
        values[name] = cells
    picked = np.flatnonzero(simple)
    return {name: cells[picked] for name, cells in values.items()}, picked


def as_examples(rows, columns):
    """Returns one serialized tf.Example per row, as clients write it: without null features, but with empty lists."""
    # the values of a column in Python's own types: a message takes them in half the time
    values_of = [rows[c["name"]][0] if c["shape"] else rows[c["name"]][0].tolist() for c in columns]
    present_of = [rows[column["name"]][1].tolist() for column in columns]
    examples = []
    example = tf.train.Example()  # one for all rows: a wide row has thousands of features to make
    feature = example.features.feature
    held: list[Any] = [None] * len(columns)
    for values, there in zip(zip(*values_of, strict=True), zip(*present_of, strict=True), strict=True):
        for i, column in enumerate(columns):
            name = column["name"]
            if there[i]:
                if held[i] is None:
                    kept = getattr(feature[name], LISTS[column["dtype"]])
                    kept.SetInParent()  # else a list without values would be no list
                    held[i] = kept.value
                held[i][:] = values[i] if column["shape"] else [values[i]]
            elif held[i] is not None:
                held[i] = None
                del feature[name]
        examples.append(example.SerializeToString())
    return examples


def _json_value(value, present):
    """Returns a raw value as the answer's "worst" row shows it, cut to 20 values or 100 letters; None for a null."""
    if not present:
        return None
    if isinstance(value, np.ndarray):
        return [_json_value(item, present) for item in value[:20]]
    return value.decode("utf-8", "replace")[:100] if isinstance(value, bytes) else value.item()


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # taking TensorFlow apart would take most of a second, and somebody waits
