"""The window of a run: the one that the run asks for, else `window` of pipeline.yaml, else all spans.

    chosen = choose_window(loaded, named=None)
    chosen.size                              # 12, "30d"; None: all spans
    chosen.spans(until="2013-06")            # ["2012-07", ..., "2013-06"]

All ways to start a run use it, so that a pipeline trains on the same spans from a terminal, Python and a server.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from flows.config.pipeline import LoadedPipeline
from headway.messages import counted
from headway.sources.spans import ALL, select_window, spans


@dataclass(frozen=True)
class ChosenWindow:
    """The size of a run's window, and where the size was set."""

    loaded: LoadedPipeline
    size: int | str | None
    """A number of spans or a time; None: all spans."""
    named: bool
    """Whether the size was set for this run by an option or a parameter, and not by pipeline.yaml or not at all."""

    def spans(self, until: str = "latest", known: Sequence[str] | None = None) -> list[str]:
        """Returns the spans of the window, oldest first.

        Args:
            known: all spans that exist; None: they are looked up in the source.

        Raises:
            ConfigError: `until` is no span, there are too few spans, or one is missing.
        """
        source = self.loaded.pipeline.source
        where = "--window" if self.named or self.size is None else f"{self.loaded.file}: window"
        return select_window(spans(source) if known is None else known, self.size, until, source.gaps, where=where)

    def __str__(self) -> str:
        """Returns the size and where it was set; empty if all spans are used and pipeline.yaml says nothing else."""
        file, key = self.loaded.file.name, self.loaded.pipeline.window
        if self.size is not None:
            return f"{_words(self.size)}, {'as asked' if self.named else f'by window of {file}'}"
        return "" if key in (None, ALL) else f"all spans, as asked, in place of {_words(key)} of {file}"


def _words(size: int | str | None) -> str:
    return counted(size, "span") if isinstance(size, int) else str(size)


def choose_window(loaded: LoadedPipeline, named: int | str | None) -> ChosenWindow:
    """Returns the window of a run.

    Args:
        named: the size set for this run by an option or a parameter; "all": all spans; None: not set.
    """
    size = loaded.pipeline.window if named is None else named
    return ChosenWindow(loaded, None if size == ALL else size, named is not None)
