"""Asserts that two values are equal bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf


def assert_same_bytes(found: Any, expected: Any) -> None:
    """Raise AssertionError unless both values have the same bits.

    Args:
        found: a tensor, variable, array, number, text, Arrow table, ragged tensor, Path of a file or folder, or a dict,
            list or tuple of them. NaNs with the same bits are the same, 0.0 and -0.0 are not.
        expected: likewise.

    Raises:
        AssertionError: with the first places that differ.
    """
    wrong: list[str] = []
    _compare("", found, expected, wrong)
    if wrong:
        others = f"\n  and {len(wrong) - 10} more" if len(wrong) > 10 else ""
        raise AssertionError("not the same bytes:\n  " + "\n  ".join(wrong[:10]) + others)


def _compare(path: str, found: Any, expected: Any, wrong: list[str]) -> None:
    where = path or "value"
    if isinstance(expected, Path) and isinstance(found, Path):
        _compare_paths(found, expected, wrong)
    elif isinstance(expected, pa.Table | pa.RecordBatch) and isinstance(found, pa.Table | pa.RecordBatch):
        _compare(path, _parts(found), _parts(expected), wrong)
    elif isinstance(expected, Mapping) and isinstance(found, Mapping):
        if set(found) != set(expected):
            wrong.append(f"{where}: the keys {sorted(found)}, expected {sorted(expected)}")
        for key in expected.keys() & found.keys():
            _compare(f"{path}[{key!r}]", found[key], expected[key], wrong)
    elif isinstance(expected, list | tuple) and isinstance(found, list | tuple):
        if len(found) != len(expected):
            wrong.append(f"{where}: {len(found)} values, expected {len(expected)}")
        for i, (one, other) in enumerate(zip(found, expected, strict=False)):
            _compare(f"{path}[{i}]", one, other, wrong)
    elif isinstance(expected, tf.RaggedTensor) and isinstance(found, tf.RaggedTensor):
        _compare(f"{path}.values", found.flat_values, expected.flat_values, wrong)
        _compare(f"{path}.splits", list(found.nested_row_splits), list(expected.nested_row_splits), wrong)
    else:
        _compare_arrays(where, _array(found), _array(expected), wrong)


def _compare_arrays(where: str, found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], wrong: list[str]) -> None:
    shapes = [f"{array.dtype} {list(array.shape)}" for array in (found, expected)]
    if shapes[0] != shapes[1]:
        wrong.append(f"{where}: {shapes[0]}, expected {shapes[1]}")
        return
    if found.dtype == object:
        different = np.array([a != b for a, b in zip(found.ravel(), expected.ravel(), strict=True)], bool)
    else:
        sizes = (found.size, found.dtype.itemsize)
        bits = [
            np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8).reshape(sizes) for array in (found, expected)
        ]
        different = (bits[0] != bits[1]).any(axis=1)
    if different.any():
        first = int(different.argmax())
        place = [int(i) for i in np.unravel_index(first, found.shape)]
        values = [array.ravel()[first] for array in (found, expected)]
        wrong.append(
            f"{where}: {int(different.sum())} of {found.size} differ, first at {place}: "
            f"{values[0]!r}, expected {values[1]!r}"
        )


def _compare_paths(found: Path, expected: Path, wrong: list[str]) -> None:
    if found.is_dir() and expected.is_dir():
        names = [{p.relative_to(folder) for p in folder.rglob("*") if p.is_file()} for folder in (found, expected)]
        wrong += [f"{found / name}: is not in {expected}" for name in sorted(names[0] - names[1])]
        wrong += [f"{found / name}: is missing" for name in sorted(names[1] - names[0])]
        for name in sorted(names[0] & names[1]):
            _compare_paths(found / name, expected / name, wrong)
        return
    lacking = [path for path in (found, expected) if not path.is_file()]
    if lacking:
        wrong.append(f"{lacking[0]}: is not a file")
        return
    one, other = found.read_bytes(), expected.read_bytes()
    if one != other:
        at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
        wrong.append(f"{found}: {len(one)} bytes, differs at byte {at} from the {len(other)} bytes of {expected}")


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
