"""Recognizes a file's format by its first bytes, for errors about files of another format.

found = another(path, "parquet")             # ("JSON lines", "say 'format: jsonl'"), or None: it may be Parquet
raise not_a(path, "parquet", default)        # DataError: is JSON lines, not a Parquet file
"""

from __future__ import annotations

import json
import re
import struct

from headway.errors import DataError
from headway.records.tfrecord import masked
from headway.sources.config import FORMATS, Format
from headway.storage import filesystem as storage

_HEAD = 4096
_OTHERS = {
    b"PK\x03\x04": ("a zip archive (or an Excel workbook)", "unzip it, or save it as CSV"),
    b"PARE": ("Parquet with an encrypted footer", "write it without encryption"),
    b"BZh": ("compressed with bzip2", "decompress it, or compress it with gzip"),
    b"\xfd7zXZ": ("compressed with xz", "unpack it: xz -d FILE"),
    b"\x28\xb5\x2f\xfd": ("compressed with zstd", "decompress it, or compress it with gzip"),
    b"\x1f\x8b": ("compressed with gzip", "gzip is for text and TFRecords; decompress it, or check source.format"),
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), ("UTF-16", "save it as UTF-8: iconv -f UTF-16 -t UTF-8 old > new")),
    b"%PDF": ("a PDF", "export its table as CSV"),
    b"SQLite format 3": ("an SQLite database", "export its table as CSV"),
    b"\x89HDF": ("an HDF5 file", "write it as Parquet"),
    b"<": ("HTML or XML", "check the path and source.format"),
}
_OBJECTS = re.compile(rb'\s*(?:\[\s*\{\s*["}]|\{\s*\n\s*")')
"""A pattern for the beginning of an array of objects, or of an object over several lines."""
_ARFF = re.compile(rb"(?i)(?:\s*%[^\n]*\n|\s)*@relation\s")
_TEXT = {name for name, format in FORMATS.items() if format.text}


def another(head: bytes, expected: Format) -> tuple[str, str] | None:
    """Returns the format that these first bytes show, and the fix; None when it may be the wanted one."""
    sniffed = format_of(head)
    if sniffed is not None and sniffed != expected and not (sniffed in _TEXT and expected in _TEXT):
        return FORMATS[sniffed].noun, f"say 'format: {sniffed}'"
    if sniffed == expected:
        return None
    if _ARFF.match(head):
        fix = "write it as CSV: pandas.DataFrame(scipy.io.arff.loadarff(file)[0]).to_csv(new_file, index=False)"
        return "an ARFF file (Weka's)", fix
    zipped = head.startswith(b"\x1f\x8b") and expected in ("csv", "jsonl", "examples")
    for magic, (what, fix) in _OTHERS.items():
        # a table may begin with <, text with anything
        if head.startswith(magic) and not zipped and not (magic == b"<" and expected in _TEXT):
            return what, fix
    if expected not in _TEXT and head and _is_text(head):
        return "text", "say 'format: csv' if it is CSV, or check source.format and the path"
    return None


def not_a(path: str, expected: Format) -> DataError | None:
    """Returns the error for a file of another format; None when its first bytes do not show one."""
    with storage.open_file(path) as file, storage.reading(path):
        other = another(file.read(_HEAD), expected)
    if other is None:
        return None
    return DataError(f"is {other[0]}, not {FORMATS[expected].noun}", where=path, fix=other[1])


def format_of(head: bytes) -> Format | None:
    """Returns the format that a file's first bytes show; None for text, which may be CSV, and for what is not known."""
    for name, format in FORMATS.items():
        if format.magic and head.startswith(format.magic):
            return name
    if len(head) >= 12 and masked(head[:8]) == struct.unpack_from("<I", head, 8)[0]:
        return "examples"
    head = head.removeprefix(b"\xef\xbb\xbf")
    return "jsonl" if is_object(head.split(b"\n", 1)[0]) or _OBJECTS.match(head) else None


def is_object(line: bytes) -> bool:
    """Returns whether a line is a JSON object, or the beginning of a long one."""
    line = line.strip()
    if not line.startswith(b"{"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return len(line) > _HEAD // 2 and line[1:].lstrip().startswith(b'"')


def _is_text(head: bytes) -> bool:
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:
            return False
        text = head[: error.start].decode("utf-8")
    return all(character.isprintable() or character in "\t\r\n\ufeff" for character in text[:512])
