"""Finds files of a window that are byte copies of others: duplicate rows, possibly in train and in eval.

for anomaly in copies([File("2013-01", "a.csv", 120, "9ae0daaf", "train"), ...]): ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headway.messages import agree, counted, some
from headway.validation.anomaly import Anomaly

_SHOWN = 3


@dataclass(frozen=True)
class File:
    """A raw file of the window."""

    span: str
    name: str
    bytes: int
    crc32c: str
    split: str | None
    """The only split that its rows are in; None: rows of it may be in any."""

    def __str__(self) -> str:
        return f"{self.span} {self.name}" + (f" ({self.split})" if self.split else "")


def copies(files: Sequence[File]) -> Iterator[Anomaly]:
    """What to tell of files with the size and checksum of an earlier one."""
    first: dict[tuple[int, str], File] = {}
    within: list[str] = []
    across: list[tuple[File, File]] = []
    for file in files:
        before = first.setdefault((file.bytes, file.crc32c), file)
        if before is file or not file.bytes:
            continue
        if before.split is not None and file.split is not None and before.split != file.split:
            across.append((before, file))
        else:
            within.append(f"{file} of {before}")
    if across:
        # a header without rows is like any other: a whole span is no accident
        spans = {file.span for _, file in across}
        copied = {file for _, file in across}
        whole = any(all(file in copied for file in files if file.span == span) for span in spans)
        yield Anomaly(
            severity="error" if whole else "warning",
            kind="duplicate rows",
            where=", ".join(dict.fromkeys(str(file.split) for pair in across for file in pair)),
            message=f"{counted(len(across), 'file')} of one split {agree(len(across), 'is a byte copy', 'are byte copies')} of "
            f"{agree(len(across), 'one', 'files')} of another: "
            f"{some([f'{file} of {before}' for before, file in across], _SHOWN)}; metrics "
            "would be measured on rows that the model was trained on",
            fix="bring the data of the span that was copied, or leave it out of the window",
        )
    if within:
        yield Anomaly(
            severity="warning",
            kind="duplicate rows",
            message=f"{counted(len(within), 'file')} of the window {agree(len(within), 'is a byte copy', 'are byte copies')} "
            f"of {agree(len(within), 'another', 'others')}, so that their rows count twice: {some(within, _SHOWN)}",
            fix="remove the copies, or leave their spans out of the window",
        )
