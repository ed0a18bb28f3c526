"""Chooses the columns whose values decide a row's split if there is no key. The choice is kept, so that eval rows stay eval rows.

    columns, identifiers = row_columns(sample, frozenset({"affairs"}))
    without_label(columns, LabelConfig(...).columns())   # the same columns, except for the label's

These are the raw columns of the first span, as the files have them. Neither the pipeline's `columns:` nor a new column in later
files changes the choice. The label's columns are left out: otherwise equal rows with different labels could be in two splits, and
among few distinct rows the label would decide the split. Identifiers are left out too: a row that stands twice under two ids is
one row.
"""

from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headway.errors import ConfigError
from headway.schema.columns import Column
from headway.schema.decimal_signs import sign_of
from headway.schema.pbtxt import split_column
from headway.schema_inference.column_types import stored_type
from headway.schema_inference.identifiers import FEW_ROWS, meaning_of
from headway.sources.sample import Sample
from headway.tabular.list_arrays import decoded, is_list, is_text, value_type

_DISTINCT = 10
"""If there are more than so many rows per distinct row, equal rows need not stay together."""
_COPIED = 1.01
"""If the label makes at most so many times as many rows distinct, equal rows are copies, with equal labels."""
_LEAST_THINGS, _NEARLY = 50, 0.9
"""The fewest distinct rows that may stand for things with several rows each; the share that counts as nearly all."""
_FIRST, _LONG = 1000, 64
"""The number of texts in which a decimal sign is searched; and the most bytes of an identifier, not a text or image."""


def row_columns(
    sample: Sample, label: Collection[str], whole: Sample | None = None
) -> tuple[tuple[Column, ...], list[str]]:
    """Returns the columns that the split hashes, and the identifiers that are left out. If all are identifiers, all are hashed.

    Args:
        whole: a sample of all spans, which decides the types. A column with real numbers in later spans must not be hashed as
            integers, or rows of those spans would be rejected.
    """
    whole = whole or sample
    columns: list[Column] = []
    identifiers: list[str] = []
    types = whole.table.schema
    for name, values in zip(sample.table.column_names, sample.table.columns, strict=True):
        of_all = values.type if pa.types.is_null(values.type) else types.field(name).type
        element = of_all.value_type if is_list(of_all) else of_all
        kind = "bytes" if pa.types.is_uint64(element) else stored_type(element)
        unfit = name in whole.conflicts or name in whole.mixed  # a row would be rejected for what nobody may use
        if kind is None or name in label or not name or "/" in name or unfit:
            continue
        if names_rows(name, values):
            identifiers.append(name)
        columns.append(split_column(name, kind, listed=is_list(of_all)))
    hashed = tuple(column for column in columns if column.name not in identifiers)
    return (hashed, identifiers) if hashed else (tuple(columns), [])


def few_distinct(sample: Sample, columns: Sequence[Column], label: Collection[str]) -> bool:
    """Returns whether fewer than a tenth of the sampled rows are distinct in these columns, as with a few categories.

    Equal rows are then no leak. A split that kept them together would divide a few combinations of values, not rows. False if
    equal rows belong to one thing, such as a patient, and must stay together. Two signs show this: one column alone tells nearly
    all distinct rows apart; or whichever column is left out, nearly all still differ in the others. False also for copies, which
    are equal rows with equal labels, for a small sample, and where a column holds lists.

    Args:
        columns: the columns that are hashed.
        label: the columns that the label is made of.
    """
    rows = sample.table.num_rows
    if rows < FEW_ROWS or any(column.shape for column in columns):
        return False
    parts = {column.name: decoded(sample.table.column(column.name)) for column in columns}
    values = [pc.count_distinct(part, mode="all").as_py() for part in parts.values()]
    if _DISTINCT * max(values) >= rows:
        return False
    distinct = pa.table(parts).group_by([*parts]).aggregate([])
    labels = {name: decoded(sample.table.column(name)) for name in sample.table.column_names if name in label}
    with_label = pa.table(parts | labels).group_by([*parts, *labels]).aggregate([]).num_rows
    if _DISTINCT * distinct.num_rows >= rows or (labels and with_label <= _COPIED * distinct.num_rows):
        return False
    least = max(_LEAST_THINGS, _NEARLY * distinct.num_rows)
    if max(values) >= least:
        return False
    without = ([other for other in parts if other != name] for name in parts)
    return any(distinct.group_by(others).aggregate([]).num_rows < least for others in without)


def names_rows(name: str, values: pa.ChunkedArray) -> bool:
    """Returns whether a column names single rows: it holds integers that only rise or only fall, or identifiers. Text counts only
    if it is short and without blanks."""
    kind, plain = value_type(values.type), decoded(values).drop_null()
    if is_text(kind) and not (len(plain) and _is_code(plain)):
        return False
    if pa.types.is_integer(kind) and len(plain) >= FEW_ROWS and _is_monotone(plain):
        return True
    return meaning_of(name, values) == "identifier"


def _is_monotone(values: pa.ChunkedArray) -> bool:
    whole = values.combine_chunks()
    before, after = whole[:-1], whole[1:]
    return bool(pc.all(pc.greater(after, before)).as_py() or pc.all(pc.less(after, before)).as_py())


def _is_code(values: pa.ChunkedArray) -> bool:
    if pc.max(pc.binary_length(values)).as_py() > _LONG:
        return False
    try:
        texts = values.cast(pa.string())
        if pc.any(pc.match_substring_regex(texts, r"\s")).as_py() or _is_time(texts):
            return False
        return sign_of(pc.unique(texts.slice(0, _FIRST))) is None  # 12,549 measures something
    except pa.ArrowInvalid:  # not UTF-8
        return False


def _is_time(texts: pa.ChunkedArray) -> bool:
    try:
        texts.slice(0, 100).cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return False
    return True


def without_label(columns: Sequence[Column], label: Collection[str]) -> tuple[Column, ...]:
    """Returns the columns for the hash of a row without the label's columns.

    Raises:
        ConfigError: no column is left.
    """
    features = tuple(column for column in columns if column.name not in label)
    if not features:
        raise ConfigError(
            "no column is left to split rows by: the label uses all of them",
            where="split",
            fix="split by a key, by a column or by time: split: {key: NAME}",
        )
    return features
