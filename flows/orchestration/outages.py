"""What keeps a flow run's process alive when its worker dies, or the server is away.

outlive_reader()                         # nothing that it prints raises BrokenPipeError
go_on_without_lease()                    # a lease that cannot be renewed ends no training
"""

import functools
import os
import sys
from typing import Any, TextIO

from prefect import flow_engine

from headway.redaction import redact


@functools.cache  # once in a process
def outlive_reader() -> None:
    """Let this process's prints hide secrets, and not fail once their reader is gone: the text is dropped.

    A flow run prints into a pipe that its worker reads. When the worker dies the pipe breaks, and the next line printed
    would end the run: rich, which Prefect prints with, raises SystemExit. The log on Prefect's server still gets every line.
    Prefect's log handlers hold the streams already, so it is the streams themselves that change.
    """
    for stream in (sys.stdout, sys.stderr):
        for name, changed in _outliving(stream).items():
            setattr(stream, name, changed)


def _outliving(stream: TextIO) -> dict[str, Any]:
    """The methods of a stream as `outlive_reader` wants them."""
    write_text, flush_text = stream.write, stream.flush

    def let_go() -> None:
        """Redirect the descriptor to /dev/null, for buffered text and for other code that prints to it."""
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)

    def write(text: str) -> int:
        try:
            write_text(redact(text))
        except BrokenPipeError:
            let_go()
        return len(text)

    def writelines(lines: Any) -> None:
        for line in lines:
            write(line)

    def flush() -> None:
        try:
            flush_text()
        except BrokenPipeError:
            let_go()

    return {"write": write, "writelines": writelines, "flush": flush}


def go_on_without_lease() -> None:
    """Let a flow run live when the lease of its deployment's concurrency slot cannot be renewed.

    Prefect ends such a run, so a server that is away for a few seconds at the wrong moment would end a training. The
    store's run lock keeps two runs of a pipeline apart without any server. By a private name of Prefect's engine.
    """
    maintain = flow_engine.maintain_concurrency_lease

    def lenient(lease_id: Any, lease_duration: float, **options: Any) -> Any:
        return maintain(lease_id, lease_duration, **options | {"raise_on_lease_renewal_failure": False})

    flow_engine.maintain_concurrency_lease = lenient  # type: ignore[assignment]
