"""A finished run as text, its warnings and its end first: some lines to paste.

summary(record, [("model", path)])
"""

from collections.abc import Sequence

from flows.records import RunRecord, State
from flows.tell.ending import ending_of
from flows.tell.rendering.cells import text_table
from flows.tell.rendering.text import fitted
from headway.messages import counted, duration, listed, metrics_line, window_text

_INDENT = 12


def summary(record: RunRecord, places: Sequence[tuple[str, object]] = (), *, verbose: bool = True) -> str:
    """A finished run, a fact per line; on a terminal no line is longer than that.

    Args:
        places: (name, path) of what the run made.
        verbose: with every check and number, notes, settings and paths.
    """
    ending, stages, ran = ending_of(record), record.stages, record.ran
    most = len(ending.concerns) if verbose else 1 if ending.tone == "red" else 3
    lines = [fitted("warning: ", concern) for concern in ending.concerns[:most]]
    if (others := len(ending.concerns) - most) > 0:
        lines.append(f"{counted(others, 'more warning')}: headway show")
    lines += [fitted("", f"{record.pipeline}: {ending.headline}"), f"  verdict   {ending.coloured}"]
    for table, narrow in zip(*(ending.tables(brief=not verbose, narrow=each) for each in (False, True)), strict=True):
        said = text_table(table.rows, whole=table.whole)
        said = text_table(narrow.rows, whole=table.whole, fit=True) if "\n\n" in said else said
        lines += [f"  {table.title}:"] * table.folded + [said] + [f"  {table.note}"] * bool(table.note)
    facts: list[tuple[str, object]] = [("", said) for said in ending.said]
    if (verbose or not ending.checks) and (metrics := metrics_line(record.metrics, record.baselines)):
        facts.append(("metrics", metrics))
    if verbose or len(record.spans) != 1:
        facts.append(("data", window(record.spans) or "no spans"))
    if verbose:
        facts += [("remark", note) for note in ending.notes if ending.checks]
        facts += [("training", f"{counted(of.rows, 'row')}: {of.says}") for of in [record.training] if of is not None]
        facts += [("note", note) for note in record.notes]
    facts += places
    work = f"{len(ran)} of {counted(len(stages), 'step')} ran"
    if record.broken_off:
        work += f"; broken off: {listed(record.broken_off)}"
    elif not ran and record.state != State.KILLED:
        work = "nothing to do: every output was there already"
    facts.append(("time", f"{duration(record.seconds)}; {work}"))
    more = "" if verbose else "; more: headway show, headway report --open"
    facts.append(("run", record.run + more))
    facts += [("report", record.report)] if record.report and verbose else []
    before = ""
    for name, text in facts:
        lines.append(fitted("  " + ("" if name == before else name).ljust(_INDENT - 2), str(text)))
        before = name
    return "\n".join(lines)


def window(spans: Sequence[str]) -> str:
    """The first and the last of some spans, and how many they are; empty of none."""
    return window_text(spans) + (f", {len(spans)} spans" if len(spans) > 1 else "")
