"""A finished run in words, its verdict first.

sentence(record)      # "promoted version 3 (auc 0.91, loss 0.32)"
summary(record)       # the same with reasons, data, training and time: some lines to paste
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence

from flows.records import RunRecord
from headway.messages import counted, duration, metrics_line, window_text
from headway.schema.notes import Note

_INDENT = 12
_SLOWEST = 3


def headline(record: RunRecord) -> str:
    """What became of the candidate."""
    version, verdict = record.version, record.verdict and record.verdict.verdict
    match record.state:
        case "promoted":
            return f"promoted version {version}" + ("" if verdict == "promote" else f": {verdict}")
        case "already champion":
            return f"version {version} is the champion already; nothing to promote"
        case "named":
            return f"{record.alias} is version {version}; the champion is as before"
        case "done":
            return f"done up to {record.last}" if record.last else "done"
        case "failed" | "cancelled" | "running" | "killed":
            return str(record.state)
    return f"not promoted: {record.state}"


def sentence(record: RunRecord) -> str:
    """The headline with the reasons of a candidate that was turned down, and the metrics."""
    text = headline(record)
    if text.startswith("not promoted"):
        text += ": " + "; ".join(record.verdict.reasons if record.verdict else [])
    metrics = metrics_line(record.metrics)
    return text + (f" ({metrics})" if metrics else "")


def summary(
    record: RunRecord, places: Sequence[tuple[str, object]] = (), *, notes: Sequence[Note] | None = None
) -> str:
    """A finished run, a fact per line; on a terminal no line is longer than that.

    Args:
        places: (name, path) of what the run made.
        notes: instead of the record's.
    """
    stages, ran = record.stages, record.ran
    facts: list[tuple[str, object]] = [("why", reason) for reason in (record.verdict.reasons if record.verdict else ())]
    if metrics := metrics_line(record.metrics, record.baselines):
        facts.append(("metrics", metrics))
    facts.append(("data", window(record.spans)))
    if training := record.training:
        facts.append(("training", f"{counted(training.rows, 'row')}: {training.says}"))
    facts += [("note", note) for note in (record.notes if notes is None else notes)]
    if warnings := record.warnings:
        facts += [("warning", warning) for warning in warnings]
        facts.append(("", "what to do about the data: headway validate, or the report"))
    facts += places
    slowest = sorted((s for s in ran if s.seconds >= 0.1), key=lambda s: -s.seconds)[:_SLOWEST]
    took = ", ".join(f"{s.title} {duration(s.seconds)}" for s in slowest)
    work = (
        f"{len(ran)} of {counted(len(stages), 'step')} ran" if ran else "nothing to do: every output was there already"
    )
    facts.append(("time", duration(record.seconds) + (f" ({took})" if took else "") + f"; {work}"))
    facts.append(("run", record.run))
    facts += [("report", record.report)] if record.report else []
    lines, before = [f"{record.pipeline}: {headline(record)}"], ""
    for name, text in facts:
        head = "  " + ("" if name == before else name).ljust(_INDENT - 2)
        lines.append(_fitted(head, str(text)))
        before = name
    return "\n".join(lines)


def window(spans: Sequence[str] | None) -> str:
    """The first and the last of some spans, and how many they are."""
    return window_text(spans) + (f", {len(spans)} spans" if len(spans) > 1 else "") if spans else "no spans"


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
