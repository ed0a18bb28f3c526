"""Who is told of a run: a terminal or a stream of JSON lines, and OpenTelemetry where that is set up.

    with reporter(quiet=False) as report:
        execute(run_spec, report)

The flows have the same listeners beside Prefect's log (`flows.orchestration.run_log`).
"""

from __future__ import annotations

from collections.abc import Sequence

from flows.observability.json_stream import stream
from flows.observability.providers import providers
from flows.progress import terminal
from flows.progress.reporter import Reporter


def reporter(*, silent: bool = False, quiet: bool = False) -> Reporter:
    """The reporter of a command.

    Args:
        silent: nothing for people, as the answer is a JSON document; a JSON stream goes on.
        quiet: no progress; of a JSON stream warnings and errors only.
    """
    told = stream()
    if told is None:
        shown = terminal.reporter(quiet=silent or quiet)
    else:
        from flows.observability.json_log import JsonLog

        shown = JsonLog(told, quiet=quiet)
    return with_telemetry([shown])


def listeners() -> list[Reporter]:
    """Those of a process beside whatever else reports its runs: the JSON stream and OpenTelemetry."""
    told, found = stream(), list[Reporter]()
    if told is not None:
        from flows.observability.json_log import JsonLog

        found.append(JsonLog(told))
    return found + _telemetry()


def with_telemetry(reporters: Sequence[Reporter]) -> Reporter:
    """The reporters as one, with OpenTelemetry where that is set up."""
    every = [*reporters, *_telemetry()]
    return every[0] if len(every) == 1 else Reporter(every)


def _telemetry() -> list[Reporter]:
    if (found := providers()) is None:
        return []
    from flows.observability.telemetry import Telemetry  # imports OpenTelemetry

    return [Telemetry(found)]
