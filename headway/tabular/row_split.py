"""Applies the split rule to the rows of one range, with the columns that only the split needs.

    rows = RowSplit(config, columns_that_are_read, hashed)
    types = rows.types(names_in_the_file, raw_types)          # what to read, with its types
    rows.assigned(coerced_batch, raw_batch, kept_rows)        # headway.tabular.splits.Assigned

A split without a key hashes `hashed`, in the types that were frozen. A column that is stored in another type, or not stored
at all, is coerced once more for the hash alone: a value that does not fit costs no row there and hashes as a null, as does
every value of a column that a later file lacks.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.schema.columns import Column
from headway.tabular.coerce import fitting, raw_type
from headway.tabular.hashing import NULL
from headway.tabular.list_arrays import is_number
from headway.tabular.splits import Assigned, Hashes, SplitConfig, assigned, column_hash, stored_value


class RowSplit:
    def __init__(self, config: SplitConfig, read: Sequence[Column], hashed: Sequence[Column]):
        self._config = config
        begins = [text for text in (config.eval_from, config.test_from) if text is not None]
        by = next((column for column in read if column.name == config.column), None)
        self._begins = [stored_value(text, by, where="split") for text in begins] if by is not None else []
        self._hashed = {column.name: column for column in hashed} if config.by_row else {}
        as_read = {column.name: column for column in read}
        self._apart = {n: c for n, c in self._hashed.items() if n not in as_read or _differ(as_read[n], c)}
        self._extra = [name for name in self._apart if name not in as_read]

    @property
    def extra(self) -> bool:
        """Whether some columns are read for the split only."""
        return bool(self._extra)

    @property
    def looks_at_raw(self) -> bool:
        """Whether `assigned` needs the batch as it was read."""
        return bool(self._apart)

    def types(self, names: Collection[str] | None, types: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
        """The types to read, `types` and those of the columns that are read for the split only.

        Args:
            names: of the file's columns; None: whatever is asked for can be read.
        """
        raw_types = dict(types)
        for name, column in self._apart.items():
            if name in self._extra and (names is None or name in names):
                raw_types[name] = raw_type(column)
            elif column.type == "bytes" and not column.shape and name in types and is_number(types[name]):
                raw_types[name] = raw_type(column)  # the text is hashed as it stands, and read as a number afterwards
        return raw_types

    def assigned(
        self,
        batch: pa.RecordBatch,
        raw: pa.RecordBatch,
        rows: NDArray[np.int64] | None,
        places: Hashes | None = None,
    ) -> Assigned:
        """The splits of a coerced batch.

        Args:
            raw: the batch as it was read.
            rows: its rows that are in `batch`; None: all of them.
            places: `place_hash` of the rows of `batch`, where equal rows need not stay together.
        """
        if not self._hashed:
            return assigned(self._config, batch, begins=self._begins)
        stored, files = (dict(zip(b.schema.names, b.columns, strict=True)) for b in (batch, raw))

        def hashes(name: str) -> Hashes:
            if name not in self._apart:
                return column_hash(stored[name])
            if name not in files:
                return np.full(batch.num_rows, NULL)
            array = _lenient(files[name], self._apart[name])
            return array if rows is None else array[rows]

        return assigned(self._config, batch, list(self._hashed), hashes, places=places)


_SAME = frozenset({"name", "nullable", "role", "encoding", "shape", "meaning", "temporal", "feature", "null"})
"""What of a column changes no stored value, as it is hashed; a vector is hashed as the list that it is."""


def _differ(read: Column, hashed: Column) -> bool:
    """Whether the stored values differ from those to hash."""
    read_as, hashed_as = (column.model_dump(exclude=set(_SAME)) for column in (read, hashed))
    return read_as != hashed_as or bool(read.shape) != bool(hashed.shape)


def _lenient(raw: pa.Array, column: Column) -> Hashes:
    array, wrong = fitting(raw, column)
    hashes = column_hash(array)
    return hashes if wrong is None else np.where(wrong, NULL, hashes)
