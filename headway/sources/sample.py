"""Facts about a sample of a span that schema inference needs beside its columns.

table = noted(table, ["2 of 50 file names match no image"])
told(table.schema)
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

_KEY = b"headway.notes"


def noted(table: pa.Table, notes: Sequence[str]) -> pa.Table:
    """`table` with those sentences."""
    if not notes:
        return table
    return table.replace_schema_metadata({**(table.schema.metadata or {}), _KEY: json.dumps(list(notes)).encode()})


def told(schema: pa.Schema) -> list[str]:
    """Its sentences."""
    return list(json.loads((schema.metadata or {}).get(_KEY, b"[]")))
