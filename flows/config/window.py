"""The window of a run: the one named for it, else `window` of pipeline.yaml, else all spans.

    chosen = choose_window(loaded, named=None)
    chosen.size                              # 12, "30d"; None: all spans
    chosen.spans(until="2013-06")            # ["2012-07", ..., "2013-06"]

Whoever starts a run asks here, so that the same pipeline trains on the same spans from a terminal, Python and a server.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from flows.config.pipeline import LoadedPipeline
from headway.messages import counted
from headway.sources.discovery.spans import ALL, select_window, spans


@dataclass(frozen=True)
class ChosenWindow:
    """The size of a run's window, and where it was said."""

    loaded: LoadedPipeline
    size: int | str | None
    """A number of spans or a time; None: all spans."""
    named: bool
    """For this run, rather than by pipeline.yaml or by nobody."""

    def spans(self, until: str = "latest", known: Sequence[str] | None = None) -> list[str]:
        """Returns the spans of the window.

        Args:
            known: the spans there are; None: those of the source.

        Raises:
            ConfigError: there are too few, or one is missing.
        """
        source = self.loaded.pipeline.source
        where = "--window" if self.named or self.size is None else f"{self.loaded.file}: window"
        return select_window(spans(source) if known is None else known, self.size, until, source.gaps, where=where)

    def __str__(self) -> str:
        """Returns the size and where it was said; empty where all spans are taken and nothing says otherwise."""
        file, key = self.loaded.file.name, self.loaded.pipeline.window
        if self.size is not None:
            return f"{_words(self.size)}, {'as asked' if self.named else f'by window of {file}'}"
        return "" if key in (None, ALL) else f"all spans, as asked, in place of {_words(key)} of {file}"


def _words(size: int | str | None) -> str:
    return counted(size, "span") if isinstance(size, int) else str(size)


def choose_window(loaded: LoadedPipeline, named: int | str | None) -> ChosenWindow:
    """Returns the window of a run.

    Args:
        named: for this run, by an option or a parameter; "all": all spans; None: it names none.
    """
    size = loaded.pipeline.window if named is None else named
    return ChosenWindow(loaded, None if size == ALL else size, named is not None)
