"""Standard output and error that outlive their reader.

    outlive_reader()

A flow run prints into a pipe that its worker reads. When the worker dies the pipe breaks, and the next line printed would
end the run: rich, which Prefect prints with, raises SystemExit. Here what nobody reads is dropped instead; the log on
Prefect's server still gets every line.
"""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO


class Outliving:
    """A text stream whose writes never fail for want of a reader."""

    def __init__(self, inner: TextIO):
        self._inner = inner

    def write(self, text: str) -> int:
        try:
            return self._inner.write(text)
        except BrokenPipeError:
            self._let_go()
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        try:
            self._inner.flush()
        except BrokenPipeError:
            self._let_go()

    def _let_go(self) -> None:
        """Point the descriptor at nothing: what is buffered, and what other code prints to it, goes there from now on."""
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self._inner.fileno())
        os.close(nothing)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def outlive_reader() -> None:
    """From now on nothing that this process prints raises BrokenPipeError."""
    sys.stdout, sys.stderr = Outliving(sys.stdout), Outliving(sys.stderr)
