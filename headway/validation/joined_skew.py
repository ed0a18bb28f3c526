"""Logged requests held against the rows of the data that have the same key, value by value.

    found = joined_skew(logged, replayed, keys=("flight_id",), columns=columns)
    found["findings"]             # [{"column": "dep_delay", "kind": "shifted", "message": "...", ...}]

Distributions do not show values that are joined to wrong rows, a small shift, or some nulls among many: row by row each is
plain. Of each column the rows are counted in which the request has another value than the data, and what is beyond the limit is
named by its pattern: lost (null in the request alone), gained (null in the data alone), moved (the values of other rows),
shifted, or different. Logged predictions are held against those of the same model on the rows of the data.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.errors import DataError
from headway.evaluation.checks.prediction_drift import jensen_shannon
from headway.messages import counted, number, signed
from headway.schema.columns import Column

DIFFERING = 0.01
"""The share of rows that may differ: data are corrected after a request was answered."""
PREDICTION = "prediction"
"""The column of both tables with the predictions: numbers, or lists of one length."""
_VALUE, _PREDICTED = 1e-6, 1e-4
"""Relative to numbers above 1: float32 as text and back; and another batch, on another machine."""
_SAME_CORRELATION, _SAME_DISTRIBUTION, _SHIFT = 0.9, 0.05, 0.01
_BINS = 20


def joined_skew(
    logged: pa.Table,
    replayed: pa.Table,
    *,
    keys: Sequence[str],
    columns: Sequence[Column],
    limit: float = DIFFERING,
) -> dict[str, Any]:
    """Compare the rows that have the same key.

    Args:
        logged: of requests: keys, columns in their stored types, predictions; a key may come several times.
        replayed: of the data, the same; keys that come several times tell no row and are left out.
        columns: those to compare, of one value per row.
        limit: the share of joined rows in which a column may differ.

    Returns:
        rows (logged), joined, ambiguous (logged rows whose key several rows of the data have), columns (a summary for
        each), predictions (a summary, None where they are not comparable), findings.

    Raises:
        DataError: no logged row has the key of a row of the data.
    """
    ours, theirs, ambiguous = _joined(logged, replayed, keys)
    if not len(ours):
        raise DataError(
            f"none of {counted(len(logged), 'logged row')} has a key of the data's rows: logged "
            f"{_example(logged, keys)}, in the data {_example(replayed, keys)}",
            fix="name data that hold these rows, and the columns that tell them apart (--key)",
        )
    summaries, findings, same = [], [], np.ones(len(ours), np.bool_)
    for column in columns:
        a, b = (
            t.column(column.name).combine_chunks().take(pa.array(at)) for t, at in ((logged, ours), (replayed, theirs))
        )
        summary, differs = _compared(column, a, b, limit)
        same &= ~differs
        summaries.append(summary)
        if summary["kind"] is not None:
            findings.append(summary | {"message": _message(summary, a, b, differs)})
    predictions = _predictions(logged, replayed, ours, theirs, same)
    if predictions is not None and predictions["differing"] > limit:
        findings.append(
            {"column": None, "kind": "predictions", "message": _predicted_otherwise(predictions, len(ours))}
        )
    return {
        "rows": len(logged),
        "joined": len(ours),
        "ambiguous": ambiguous,
        "limit": limit,
        "columns": summaries,
        "predictions": predictions,
        "findings": findings,
    }


def _joined(
    logged: pa.Table, replayed: pa.Table, keys: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """(rows of `logged`, the row of `replayed` of each, how many have a key of several rows)"""
    ours, theirs = (_key(table, keys) for table in (logged, replayed))
    encoded = theirs.dictionary_encode()
    indices = encoded.indices.fill_null(-1).to_numpy()
    present = indices >= 0
    counts = np.bincount(indices[present], minlength=len(encoded.dictionary))
    place = np.empty(len(encoded.dictionary), np.int64)
    place[indices[present]] = np.flatnonzero(present)
    found = pc.index_in(ours, value_set=encoded.dictionary).fill_null(-1).to_numpy().astype(np.int64)
    found[ours.is_null().to_numpy(zero_copy_only=False)] = -1
    known = found >= 0
    single = known.copy()
    single[known] = counts[found[known]] == 1
    rows = np.flatnonzero(single)
    return rows, place[found[rows]], int(known.sum() - single.sum())


def _key(table: pa.Table, keys: Sequence[str]) -> pa.Array:
    """Each row's key as text; null where a part is."""
    parts = []
    for name in keys:
        part = table.column(name).combine_chunks()
        part = part.dictionary_decode() if pa.types.is_dictionary(part.type) else part
        parts.append(part.cast(pa.string()))
    joined = pc.binary_join_element_wise(*parts, "\x1f") if len(parts) > 1 else parts[0]
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def _example(table: pa.Table, keys: Sequence[str]) -> str:
    return ", ".join(f"{name}={table.column(name)[0].as_py()!r}" for name in keys) if len(table) else "nothing"


def _compared(
    column: Column, ours: pa.Array, theirs: pa.Array, limit: float
) -> tuple[dict[str, Any], NDArray[np.bool_]]:
    """(the summary of a column, which rows differ)"""
    a_null, b_null = (side.is_null().to_numpy(zero_copy_only=False) for side in (ours, theirs))
    numeric = column.type != "bytes"
    if numeric:
        a, b = (side.cast(pa.float64()).fill_null(np.nan).to_numpy() for side in (ours, theirs))
        # NaN stands for a null in requests
        a_null, b_null = a_null | np.isnan(a), b_null | np.isnan(b)
        with np.errstate(invalid="ignore"):
            apart = ~(np.abs(a - b) <= _VALUE * np.maximum(1, np.abs(b))) & (a != b)
    else:
        a, b = _codes(ours, theirs)
        apart = a != b
    both = ~a_null & ~b_null
    different = apart & both
    rows = max(len(both), 1)
    summary: dict[str, Any] = {
        "column": column.name,
        "lost": float((a_null & ~b_null).sum() / rows),
        "gained": float((~a_null & b_null).sum() / rows),
        "differing": float(different.sum() / rows),
        "shift": None,
        "correlation": None,
        "kind": None,
    }
    if numeric and both.any():
        summary |= _moments(a[both], b[both])
    if summary["differing"] > limit:
        same_values = _same_distribution(a[both], b[both], numeric)
        shares = np.unique(b[both], return_counts=True)[1] / max(both.sum(), 1)
        by_chance = float(1 - (shares**2).sum())  # the share of rows that would differ from a row drawn at random
        summary["kind"] = _kind(summary, numeric, same_values, by_chance, different.sum() / max(both.sum(), 1))
    elif summary["lost"] > limit or summary["gained"] > limit:
        summary["kind"] = "lost" if summary["lost"] >= summary["gained"] else "gained"
    return summary, different | (a_null != b_null)


def _codes(ours: pa.Array, theirs: pa.Array) -> tuple[NDArray[Any], NDArray[Any]]:
    """The texts of both as numbers, equal where they are."""
    sides = [s.dictionary_decode() if pa.types.is_dictionary(s.type) else s for s in (ours, theirs)]
    both = pa.concat_arrays([side.cast(pa.binary()) for side in sides]).dictionary_encode().indices.fill_null(-1)
    codes = both.to_numpy()
    return codes[: len(ours)], codes[len(ours) :]


def _moments(a: NDArray[np.float64], b: NDArray[np.float64]) -> dict[str, Any]:
    good = np.isfinite(a) & np.isfinite(b)
    a, b = a[good], b[good]
    if not len(a):
        return {}
    spread, ours = float(b.std()), float(a.std())
    middle = a - a.mean()
    correlation = float((middle * (b - b.mean())).mean() / (spread * ours)) if spread and ours else None
    return {"shift": float((a - b).mean() / spread) if spread else None, "correlation": correlation}


def _same_distribution(a: NDArray[Any], b: NDArray[Any], numeric: bool) -> bool:
    """Whether both hold the same values equally often, in whichever rows."""
    if numeric:
        edges = np.unique(np.quantile(b, np.linspace(0, 1, _BINS + 1)[1:-1]))
        a, b = np.searchsorted(edges, a), np.searchsorted(edges, b)
    most = int(max(a.max(), b.max())) + 1
    shares = [np.bincount(side.astype(np.int64), minlength=most) / len(side) for side in (a, b)]
    return jensen_shannon(*shares) < _SAME_DISTRIBUTION


def _kind(summary: dict[str, Any], numeric: bool, same_values: bool, by_chance: float, differing: float) -> str:
    correlation, shift = summary["correlation"], summary["shift"]
    elsewhere = not numeric or (correlation is not None and correlation < _SAME_CORRELATION)
    if same_values and elsewhere and differing > 0.5 * by_chance:
        return "moved"
    if numeric and correlation is not None and correlation >= _SAME_CORRELATION and abs(shift or 0) > _SHIFT:
        return "shifted"
    return "different"


def _message(summary: dict[str, Any], ours: pa.Array, theirs: pa.Array, differs: NDArray[np.bool_]) -> str:
    at = int(differs.argmax())
    a, b = (side[at].as_py() for side in (ours, theirs))
    example = f"such as {_text(a)} where the data have {_text(b)}"
    name, share, rows = repr(summary["column"]), summary["differing"], counted(len(ours), "joined row")
    nulls = f"; null in {summary['lost']:.1%} that have a value in the data" if summary["lost"] else ""
    match summary["kind"]:
        case "lost":
            return f"{name} is null in {summary['lost']:.1%} of {rows} that have a value in the data"
        case "gained":
            return f"{name} has a value in {summary['gained']:.1%} of {rows} that are null in the data"
        case "moved":
            how = "" if summary["correlation"] is None else f" (correlation {number(summary['correlation'])})"
            return (
                f"{name} has the values of other rows{how}: {share:.1%} of {rows} differ, {example}, and the values as a "
                f"whole are those of the data{nulls}"
            )
        case "shifted":
            return (
                f"{name} is shifted by {signed(round(summary['shift'], 3))} standard deviations: {share:.1%} of {rows} "
                f"differ, {example}{nulls}"
            )
    return f"{name} differs in {share:.1%} of {rows}, {example}{nulls}"


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return repr(value.decode("utf-8", "backslashreplace"))
    return number(value) if isinstance(value, float) else "null" if value is None else str(value)


def _predictions(
    logged: pa.Table, replayed: pa.Table, ours: NDArray[np.int64], theirs: NDArray[np.int64], same: NDArray[np.bool_]
) -> dict[str, Any] | None:
    if PREDICTION not in logged.column_names or PREDICTION not in replayed.column_names:
        return None
    a, b = (
        _matrix(t.column(PREDICTION).combine_chunks().take(pa.array(at)))
        for t, at in ((logged, ours), (replayed, theirs))
    )
    if a.shape != b.shape:
        return None
    gap = np.abs(a - b)
    differs = np.asarray((~(gap <= _PREDICTED * np.maximum(1, np.abs(b)))).any(axis=1))
    finite = np.isfinite(gap)
    equal_rows = int(np.count_nonzero(same))
    return {
        "differing": float(differs.mean()),
        "mean_difference": float(gap[finite].mean()) if finite.any() else None,
        "shift": float((a - b)[finite].mean()) if finite.any() else None,
        "equal_rows": equal_rows,
        "differing_equal_rows": float(differs[same].mean()) if equal_rows else None,
    }


def _matrix(values: pa.Array) -> NDArray[np.float64]:
    if pa.types.is_nested(values.type):
        flat = values.flatten().cast(pa.float64()).to_numpy(zero_copy_only=False)
        return flat.reshape(len(values), -1) if len(values) and not len(flat) % len(values) else np.zeros((0, 0))
    return values.cast(pa.float64()).fill_null(np.nan).to_numpy()[:, None]


def _predicted_otherwise(found: dict[str, Any], rows: int) -> str:
    text = (
        f"the logged predictions are not those of the data's rows: {found['differing']:.1%} of "
        f"{counted(rows, 'joined row')} differ, by {number(found['mean_difference'])} on average"
    )
    if not found["equal_rows"]:
        return f"{text}; no row has all columns as in the data"
    share, equal = found["differing_equal_rows"], counted(found["equal_rows"], "row")
    if share > 0:
        return f"{text}; {share:.1%} of the {equal} with all columns as in the data: another model answered"
    return f"{text}; of the {equal} with all columns as in the data none"
