"""A finished run as text, its end first: some lines to paste.

summary(record, [("model", path)])
"""

import shutil
import sys
import textwrap
from collections.abc import Sequence

from flows.records import RunRecord
from flows.tell.ending import ending_of
from headway.messages import counted, duration, metrics_line, window_text
from headway.schema.notes import Note

_INDENT = 12
_SLOWEST = 3


def summary(
    record: RunRecord, places: Sequence[tuple[str, object]] = (), *, notes: Sequence[Note] | None = None
) -> str:
    """A finished run, a fact per line; on a terminal no line is longer than that.

    Args:
        places: (name, path) of what the run made.
        notes: instead of the record's.
    """
    ending, stages, ran = ending_of(record), record.stages, record.ran
    facts: list[tuple[str, object]] = [("verdict", ending.coloured)]
    facts += [("warning", concern) for concern in ending.concerns]
    if record.warnings:
        facts.append(("", "what to do about the data: headway validate, or the report"))
    facts += [("why", reason) for reason in ending.said]
    if metrics := metrics_line(record.metrics, record.baselines):
        spans = record.verdict.spans if record.verdict else ()
        facts.append(("metrics", metrics + (f"; on the eval rows of {window_text(spans)}" if spans else "")))
    facts.append(("data", window(record.spans) or "no spans"))
    if training := record.training:
        facts.append(("training", f"{counted(training.rows, 'row')}: {training.says}"))
    facts += [("note", note) for note in (record.notes if notes is None else notes)]
    facts += places
    slowest = sorted((s for s in ran if s.seconds >= 0.1), key=lambda s: -s.seconds)[:_SLOWEST]
    took = ", ".join(f"{s.title} {duration(s.seconds)}" for s in slowest)
    work = (
        f"{len(ran)} of {counted(len(stages), 'step')} ran" if ran else "nothing to do: every output was there already"
    )
    facts.append(("time", duration(record.seconds) + (f" ({took})" if took else "") + f"; {work}"))
    facts.append(("run", record.run))
    facts += [("report", record.report)] if record.report else []
    lines, before = [f"{record.pipeline}: {ending.headline}"], ""
    for name, text in facts:
        head = "  " + ("" if name == before else name).ljust(_INDENT - 2)
        lines.append(_fitted(head, str(text)))
        before = name
    return "\n".join(lines)


def window(spans: Sequence[str]) -> str:
    """The first and the last of some spans, and how many they are; empty of none."""
    return window_text(spans) + (f", {len(spans)} spans" if len(spans) > 1 else "")


def _fitted(head: str, text: str) -> str:
    """A line, wrapped where people read it; a path or a word that is longer stays whole, to be copied."""
    if not sys.stdout.isatty():
        return head + text
    width = max(shutil.get_terminal_size().columns, 40)
    return textwrap.fill(
        text,
        width,
        initial_indent=head,
        subsequent_indent=" " * _INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
