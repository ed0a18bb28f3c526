"""Row groups as tf.train.Example, and the TFRecord files that hold them.

    with ShardWriter(path) as shard:
        for batch, sizes in RowGrouper(4096).add(rows):
            shard.write_groups(encode_records(batch, sizes, columns), sizes)

`headway.records.encode`, `.classic` and `.decode` hold what their names say.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.records.grouping import RowGrouper
    from headway.records.spec import RecordsConfig, feature_spec
    from headway.records.tfrecord import ShardWriter, read_records

__all__ = ["RecordsConfig", "RowGrouper", "ShardWriter", "feature_spec", "read_records"]
_HOMES = {
    "RecordsConfig": "spec",
    "RowGrouper": "grouping",
    "ShardWriter": "tfrecord",
    "feature_spec": "spec",
    "read_records": "tfrecord",
}


def __getattr__(name: str) -> Any:
    # on first use: importing the package imports no pyarrow
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
