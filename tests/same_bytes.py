"""Asserts that two values are equal bit for bit."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf


def assert_same_bytes(actual: Any, expected: Any) -> None:
    """Raise AssertionError unless both values have the same bits.

    Args:
        actual: a tensor, variable, array, number, text, Arrow table, ragged tensor, Path of a file or folder, or a dict,
            list or tuple of them. NaNs with the same bits are the same, 0.0 and -0.0 are not.
        expected: likewise.

    Raises:
        AssertionError: with the first places that differ.
    """
    wrong: list[str] = []
    _compare("", actual, expected, wrong)
    if wrong:
        others = f"\n  and {len(wrong) - 10} more" if len(wrong) > 10 else ""
        raise AssertionError("not the same bytes:\n  " + "\n  ".join(wrong[:10]) + others)


def _compare(path: str, actual: Any, expected: Any, wrong: list[str]) -> None:
    where = path or "value"
    if isinstance(expected, Path) and isinstance(actual, Path):
        _compare_paths(actual, expected, wrong)
    elif isinstance(expected, pa.Table | pa.RecordBatch) and isinstance(actual, pa.Table | pa.RecordBatch):
        _compare(path, _parts(actual), _parts(expected), wrong)
    elif isinstance(expected, Mapping) and isinstance(actual, Mapping):
        if set(actual) != set(expected):
            wrong.append(f"{where}: the keys {sorted(actual)}, expected {sorted(expected)}")
        for key in expected.keys() & actual.keys():
            _compare(f"{path}[{key!r}]", actual[key], expected[key], wrong)
    elif isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
        if len(actual) != len(expected):
            wrong.append(f"{where}: {len(actual)} values, expected {len(expected)}")
        for i, (one, other) in enumerate(zip(actual, expected, strict=False)):
            _compare(f"{path}[{i}]", one, other, wrong)
    elif isinstance(expected, tf.RaggedTensor) and isinstance(actual, tf.RaggedTensor):
        _compare(f"{path}.values", actual.flat_values, expected.flat_values, wrong)
        _compare(f"{path}.splits", list(actual.nested_row_splits), list(expected.nested_row_splits), wrong)
    else:
        _compare_arrays(where, _array(actual), _array(expected), wrong)


def _compare_arrays(where: str, actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], wrong: list[str]) -> None:
    shapes = [f"{array.dtype} {list(array.shape)}" for array in (actual, expected)]
    if shapes[0] != shapes[1]:
        wrong.append(f"{where}: {shapes[0]}, expected {shapes[1]}")
        return
    if actual.dtype == object:
        different = np.array([a != b for a, b in zip(actual.ravel(), expected.ravel(), strict=True)], bool)
    else:
        sizes = (actual.size, actual.dtype.itemsize)
        bits = [
            np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8).reshape(sizes)
            for array in (actual, expected)
        ]
        different = (bits[0] != bits[1]).any(axis=1)
    if different.any():
        first = int(different.argmax())
        place = [int(i) for i in np.unravel_index(first, actual.shape)]
        values = [array.ravel()[first] for array in (actual, expected)]
        wrong.append(
            f"{where}: {int(different.sum())} of {actual.size} differ, first at {place}: "
            f"{values[0]!r}, expected {values[1]!r}"
        )


def _compare_paths(actual: Path, expected: Path, wrong: list[str]) -> None:
    if actual.is_dir() and expected.is_dir():
        names = [{p.relative_to(folder) for p in folder.rglob("*") if p.is_file()} for folder in (actual, expected)]
        wrong += [f"{actual / name}: is not in {expected}" for name in sorted(names[0] - names[1])]
        wrong += [f"{actual / name}: is missing" for name in sorted(names[1] - names[0])]
        for name in sorted(names[0] & names[1]):
            _compare_paths(actual / name, expected / name, wrong)
        return
    lacking = [path for path in (actual, expected) if not path.is_file()]
    if lacking:
        wrong.append(f"{lacking[0]}: is not a file")
        return
    one, other = actual.read_bytes(), expected.read_bytes()
    if one != other:
        at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
        wrong.append(f"{actual}: {len(one)} bytes, differs at byte {at} from the {len(other)} bytes of {expected}")


def _parts(table: pa.Table | pa.RecordBatch) -> dict[str, Any]:
    whole = pa.table(table) if isinstance(table, pa.Table) else pa.Table.from_batches([table])
    parts = {}
    for name, column in zip(whole.column_names, whole.columns, strict=True):
        values = column.combine_chunks().to_numpy(zero_copy_only=False)
        parts[name] = {"type": str(column.type), "values": values, "nulls": column.is_null().to_numpy()}
    return parts


def _array(value: Any) -> np.ndarray[Any, Any]:
    if hasattr(value, "numpy"):
        value = value.numpy()
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "SU" else array
