"""The commands that show data: rejected rows, and rows exported for other tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from flows.cli.commands import answer, context_of, execute, store_of
from flows.cli.options import Count, Options, PipelinePath, RunOptions
from headway.errors import ConfigError, StoreError
from headway.messages import agree, counted

if TYPE_CHECKING:
    from flows.pipeline.context import Context
    from headway.records.row_files import Part

Split = Literal["train", "eval", "test"]


def quarantine(
    pipeline: PipelinePath = ".",
    /,
    *,
    span: str | None = None,
    limit: Annotated[Count, Parameter(metavar="ROWS")] = 20,
    options: Options = Options(),
) -> int:
    """Show the rows that the latest run's ingest rejected, of all its spans or of one.

    Args:
        span: show only this span.
        limit: how many rows to show.
    """
    import pyarrow as pa

    from flows.records import records
    from headway.tabular import quarantine as quarantines

    loaded, store = store_of(pipeline, options)
    ingests = next(
        (run.ingested for run in records(store) if run.pipeline == loaded.pipeline.name and run.ingested), {}
    )
    if not ingests:
        raise StoreError("no run has ingested anything yet", where=str(store.root), fix="headway run --to ingest")
    if span is not None and span not in ingests:
        raise ConfigError(f"the latest run has no span {span!r}", where="--span", fix=f"it has: {', '.join(ingests)}")
    tables, read = [], 0
    for name, fingerprint in ingests.items():
        manifest = store.find("ingest", fingerprint)
        if manifest is None or span not in (None, name):
            continue
        read += manifest.counts.read if manifest.counts is not None else 0
        table = quarantines.read(store.local(store.output("ingest", fingerprint)))
        tables.append(table.add_column(0, "span", pa.array([name] * len(table), pa.string())))
    table = pa.concat_tables(tables)
    found = Rejected(len(table), read, quarantines.reasons(table), table.slice(0, limit).to_pylist())
    return answer(options, found, _text(found))


@dataclass(frozen=True)
class Rejected:
    rows: int
    read: int
    reasons: list[dict[str, str | int]]
    """column, reason and rows, the most frequent first."""
    quarantine: list[dict[str, str | int | None]]
    """The first rows, each with its place, reason and value."""


def _text(found: Rejected) -> str:
    from flows.tell.rendering.cells import text_table

    rows, read = found.rows, found.read
    if not rows:
        return f"nothing was rejected: {counted(read, 'row')} read"
    share = f"{rows:,} of {read:,} rows {agree(rows, 'was', 'were')} rejected ({rows / max(1, read):.3%})"
    cut = [row | {"value": row["value"] and str(row["value"])[:60]} for row in found.quarantine]
    # a reason ends with the byte
    lines = [share, "", text_table(found.reasons, whole=["reason"]), "", text_table(cut, whole=["reason"])]
    if rows > len(cut):
        lines.append(f"and {rows - len(cut):,} more: --limit shows them")
    return "\n".join(lines)


def export_rows(
    pipeline: PipelinePath = ".",
    /,
    *,
    output: Annotated[Path, Parameter(metavar="FILE")],
    split: Split | None = None,
    format: Literal["parquet", "csv", "examples"] | None = None,
    options: RunOptions = RunOptions(),
) -> int:
    """The rows of the window as one table, with the model's predictions of the eval rows; trained first where it is not.

    Args:
        output: a .parquet or .csv file that does not exist yet; of examples a folder.
        split: write only this split (default: all).
        format: parquet and csv are one table (default: by the ending of --output); examples are the ingested rows as classic
            tf.Examples, one per row, in TFRecord files.
    """
    from headway.records import row_files

    if format == "examples":
        row_files.check_free(output)
        context = context_of(pipeline, options, last="ingest")
        parts = _parts(context, _made(context, options), split)
        return _wrote(options, output, row_files.write_examples(parts, output))
    row_files.check_output(output, format)
    context = context_of(pipeline, options, last="ingest" if split == "train" else "evaluate")
    made = _made(context, options)
    parts = _parts(context, made, split)
    if split == "train":
        return _wrote(options, output, row_files.write_rows(parts, output, format=format))
    assert made.candidate is not None
    scored = context.store.local(made.candidate.scored.path) / "predictions.parquet"
    classes = map(str, made.label.classes or ())
    scores = {"eval": scored} if "eval" in parts else {}
    return _wrote(options, output, row_files.write_rows(parts, output, scores, outputs=tuple(classes), format=format))


def _made(context: Context, options: RunOptions) -> Context:
    """The outputs of the window; a run makes those that are not there, and what is there needs none."""
    from flows.pipeline.plan import look_ahead

    plan = look_ahead(context)
    # metrics choose between seeds; of one model they are not needed, and once it is promoted, nobody has measured it alone
    one = sum(output.stage == "train" for output in plan.outputs) == 1
    if plan.follows or not all(output.hit or (one and output.stage == "measure") for output in plan.outputs):
        execute(options, context)
        plan = look_ahead(context)
    return plan


def _parts(context: Context, made: Context, split: str | None) -> dict[str, list[Part]]:
    """{split: its ingested parts} of a window."""
    from headway.tabular.splits import window_splits

    ingested = made.ingested
    parts: dict[str, list[Part]] = {}
    for name, split_parts in window_splits(context.loaded.pipeline.split, made.spans).items():
        for span, part in split_parts if split in (None, name) else ():
            result = ingested[span].get()
            if part in result["splits"]:
                parts.setdefault(name, []).append((context.store.local(ingested[span].path), result, part))
    return parts


def _wrote(options: RunOptions, output: Path, rows: Mapping[str, int]) -> int:
    splits = ", ".join(f"{name} {counted(count, 'row')}" for name, count in rows.items())
    return answer(options, {"output": output, "rows": rows}, f"wrote {splits} to {output}")
