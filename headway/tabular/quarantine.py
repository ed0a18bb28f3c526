"""The table of quarantined rows: each rejected row with its file, number, column, value, and the reason. The reason comes from
`headway.tabular.coerce`, a reader or the ingest.

table = rejected([3], "fare", ["12,5"], "is not a number")
write(Path("quarantine.parquet"), [table])
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headway.errors import DataError

CUT = 200
"""The most characters of a value that the table keeps."""
PLACE = r",( in the line)? at byte \d+$"
"""A pattern for the end of a reason that gives the byte of the file at which a line is."""
FILE_NAME = "quarantine.parquet"
SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("row", pa.int64()),
        ("column", pa.string()),
        ("value", pa.string()),
        ("reason", pa.string()),
    ]
)
"""The columns of the table. `row` counts the data rows of the file from 1. `column` is null if the whole line is malformed."""


def rejected(
    rows: Sequence[int], column: str | None, values: Sequence[object], reason: str | Sequence[str], file: str = ""
) -> pa.Table:
    """Returns a table of rejected rows. `rows` may be positions in a batch or range; the caller makes them absolute later."""
    texts = [None if value is None else text_of(value)[:CUT] for value in values]
    n = len(texts)
    reasons = [reason] * n if isinstance(reason, str) else list(reason)
    arrays = [
        pa.array([file] * n, pa.string()),
        pa.array(rows, pa.int64()),
        pa.array([column] * n, pa.string()),
        pa.array(texts, pa.string()),
        pa.array(reasons, pa.string()),
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def text_of(value: object) -> str:
    """Returns the text of a value for people: text as it is, lists and objects as JSON."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return json.dumps(value, ensure_ascii=False, default=text_of) if isinstance(value, list | dict) else str(value)


def write(path: Path, tables: Iterable[pa.Table]) -> int:
    """Write the tables as one Parquet file and return the number of rows. Without rows no file is written."""
    whole = pa.concat_tables([SCHEMA.empty_table(), *tables]).combine_chunks()
    if whole.num_rows:
        pq.write_table(whole, path, compression="zstd")
    return whole.num_rows


def read(folder: Path) -> pa.Table:
    """Read the quarantine table from the folder of an ingest output. Returns an empty table if nothing was rejected.

    Raises:
        DataError: the file is damaged.
    """
    path = folder / FILE_NAME
    try:
        return pq.read_table(path) if path.exists() else SCHEMA.empty_table()
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"cannot be read: {reason}", where=str(path), fix="run again: the store makes it anew"
        ) from None


def reasons(table: pa.Table) -> list[dict[str, str | int]]:
    """Returns the number of rejected rows for each column and reason, as {column, reason, rows}, the most frequent first."""
    # the same fault at another byte is the same reason
    reason = pc.replace_substring_regex(table.column("reason"), PLACE, "")
    table = table.set_column(table.schema.get_field_index("reason"), "reason", reason)
    counts = table.group_by(["column", "reason"]).aggregate([([], "count_all")])
    counts = counts.sort_by([("count_all", "descending"), ("reason", "ascending")])
    return counts.rename_columns(["column", "reason", "rows"]).to_pylist()
