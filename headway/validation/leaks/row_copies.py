"""Rows that nearly repeat another one, as rows do that were copied with noise or measured twice.

    copies = copies_of_rows(train, eval_, names)     # Copies(share=0.21, rows=4096); None: no more than there are by chance

A near copy is far nearer to its original than other rows are. So a row's nearest other row is held against its fifth nearest: of
points without copies, in D dimensions, P(nearest / fifth nearest < t) = 1 - (1 - t^D)^4, and D follows from the same ratios
(Facco et al., "Estimating the intrinsic dimension of datasets by a minimal neighborhood information", 2017). Where nearly all
rows have copies it comes out below that of a line, and is taken from the fifth and the 25th nearest. Only numbers of many values
are coordinates; in the other columns a copy has to agree. At most `_COLUMNS` columns are looked at, evenly spread over the table.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.messages import counted, percent
from headway.schema.columns import LABEL
from headway.statistics.row_sample import numbers
from headway.statistics.split_statistics import SplitStatistics
from headway.validation.leaks.label_strength import exact_codes, spread

_COLUMNS, _AMONG, _OF = 64, 200, 50
"""The most columns, and the fewest rows that have copies among them, and that are copies."""
_NEAR, _BY_CHANCE, _FIFTH, _FAR = (0.1, 0.4), 0.005, 5, 25
"""A near copy's distance over that of its fifth nearest row: so small that few rows by chance, within bounds."""
_LEAST_SHARE, _LEAST_COPIES, _TIMES = 0.03, 20, 3.0
"""The least share of copies, their least number, and how many times as many as by chance."""
_FINE, _LEAST_FINE, _ALIKE = 0.05, 2, 0.9
"""Distinct values over rows of a number that tells rows apart, the fewest such numbers, and the share of the other columns
in which a near copy agrees."""
_EQUAL = 1e-6


class Copies(NamedTuple):
    share: float
    """Of the sampled rows: those that nearly repeat another one."""
    rows: int

    def __str__(self) -> str:
        return (
            f"about {percent(self.share)} of the rows nearly repeat another row ({counted(self.rows, 'sampled row')} compared): "
            "split by row, a model is judged on rows that it nearly knows"
        )


def copies_of_rows(among: SplitStatistics, of: SplitStatistics, names: Collection[str]) -> Copies | None:
    """The copies that sampled rows of `of` have in `among`, which may be the same.

    None: no more than rows of the kind have by chance, or too few rows or numbers to say.
    """
    sides = [statistics.sample.table() for statistics in ((among,) if among is of else (among, of))]
    tables = [
        side for side, least in zip(sides, (_AMONG, _OF), strict=False) if side is not None and len(side) >= least
    ]
    if len(tables) < len(sides):
        return None
    points, words, numbered = _points(tables, names)
    if points.shape[1] < _LEAST_FINE:
        return None
    many = len(tables[0])
    ours = slice(None) if among is of else slice(many, None)
    nearest, near, fifth, far = _neighbours(points[:many], points[ours], itself=among is of)
    alike = (words[ours] == words[nearest]).mean(1) >= _ALIKE if words.shape[1] else np.ones(len(near), np.bool_)
    apart = near > _EQUAL
    # equal rows are in one split, but for a number of each row that is not known as one
    copies, by_chance = ~apart & alike & numbered, 0.0
    if apart.sum() >= _OF:
        ratio = near / np.maximum(fifth, 1e-12)
        most = min(float(np.quantile(ratio[apart], 0.9)), 0.999)  # which copies hardly move
        dimensions = np.log(1 - 0.1 ** (1 / (_FIFTH - 1))) / np.log(most)
        if dimensions < 1:  # nearly all rows have copies. The median of Beta(5, 20) is that of (fifth / 25th)^D
            farther = min(float(np.median((fifth / np.maximum(far, 1e-12))[apart])), 0.999)
            dimensions = np.log((_FIFTH - 1 / 3) / (_FAR - 2 / 3)) / np.log(farther)
        bound = float(np.clip((1 - (1 - _BY_CHANCE) ** (1 / (_FIFTH - 1))) ** (1 / dimensions), *_NEAR))
        by_chance = 1 - (1 - bound**dimensions) ** (_FIFTH - 1)
        copies |= apart & (ratio < bound) & alike
    enough = copies.sum() >= _LEAST_COPIES and copies.mean() >= max(_LEAST_SHARE, _TIMES * by_chance)
    return Copies(float(copies.mean()), len(near)) if enough else None


def _points(tables: Sequence[pa.Table], names: Collection[str]) -> tuple[NDArray[np.float32], NDArray[np.int64], bool]:
    """(each row's numbers of many values, on scales of their own, codes of its other values, whether a column numbers the rows
    and is neither)."""
    chosen = {*names}
    kinds = {field.name: field.type for field in tables[0].schema}
    alike = [
        name
        for name in kinds
        if name in chosen and name != LABEL and {t.field(name).type for t in tables} == {kinds[name]}
    ]
    whole = pa.concat_tables([table.select(alike) for table in tables])
    points, words, numbered = list[NDArray[np.float64]](), list[NDArray[np.int64]](), False
    for place in spread([*range(len(alike))], _COLUMNS):
        values = whole.column(place)
        codes = exact_codes(values)
        if pa.types.is_uint64(values.type) or codes.max() < _FINE * len(codes):
            words.append(codes)
            continue
        if pa.types.is_integer(values.type) and codes.max() + 1 == len(codes):
            numbered = True
            continue
        floats, good = numbers(values)
        low, middle, high = np.quantile(floats[good], [0.25, 0.5, 0.75])
        scale = (high - low) or float(floats[good].std()) or 1.0
        # nearly linear in the middle, so that what is close stays close; the far ends are drawn in
        points.append(np.arcsinh((floats - middle) / scale) * good)
        if not good.all():
            words.append(good.astype(np.int64))
    rows = sum(len(table) for table in tables)  # a table of no columns has no rows
    coordinates = np.array(points, np.float32).reshape(-1, rows).T
    return coordinates, np.array(words, np.int64).reshape(-1, rows).T, numbered


def _neighbours(
    theirs: NDArray[np.float32], ours: NDArray[np.float32], *, itself: bool
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """(the nearest of theirs, its distance, that of the fifth and of the 25th nearest) of each of our points."""
    nearest, distances = np.empty(len(ours), np.int64), np.empty((3, len(ours)), np.float32)
    square = (theirs**2).sum(1)
    for start in range(0, len(ours), 512):
        block, here = ours[start : start + 512], slice(start, start + 512)
        roughly = square - 2 * block @ theirs.T
        if itself:
            roughly[np.arange(len(block)), start + np.arange(len(block))] = np.inf
        closest = np.argpartition(roughly, _FAR - 1, axis=1)[:, :_FAR]
        exact = np.sqrt(((theirs[closest] - block[:, None]) ** 2).sum(2))
        nearest[here] = np.take_along_axis(closest, exact.argmin(1)[:, None], 1)[:, 0]
        distances[:, here] = np.sort(exact, 1)[:, [0, _FIFTH - 1, _FAR - 1]].T
    return nearest, *distances
