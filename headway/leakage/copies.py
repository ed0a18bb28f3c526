"""Finds files of a window that are byte copies of others: duplicate rows, possibly in train and in eval.

for anomaly in copies([File("2013-01", "a.csv", 120, "9ae0daaf", "train"), ...]): ...
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headway.messages import agree, counted, some
from headway.validation.anomaly import Anomaly, finding

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
    """Findings about files with the size and checksum of an earlier file."""
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
        # a header without rows is like any other: a whole span, or its whole split, is not an accident
        copied = {file for _, file in across}
        parts = {(file.span, file.split) for file in copied}
        whole = any(all(file in copied for file in files if (file.span, file.split) == part) for part in parts)
        message = f"{counted(len(across), 'file')} of one split "
        message += f"{agree(len(across), 'is a byte copy', 'are byte copies')} of "
        message += f"{agree(len(across), 'one', 'files')} of another: "
        message += f"{some([f'{file} of {before}' for before, file in across], _SHOWN)}; "
        message += "metrics would be measured on rows that the model was trained on"
        fix = "bring the data of the span that was copied, or leave it out of the window"
        splits = ", ".join(dict.fromkeys(str(file.split) for pair in across for file in pair))
        yield finding("error" if whole else "warning", "duplicate rows", splits, message, fix)
    if within:
        message = f"{counted(len(within), 'file')} of the window "
        message += f"{agree(len(within), 'is a byte copy', 'are byte copies')} of "
        message += f"{agree(len(within), 'another', 'others')}, so that their rows count twice: {some(within, _SHOWN)}"
        fix = "remove the copies, or leave their spans out of the window"
        yield finding("warning", "duplicate rows", None, message, fix)
