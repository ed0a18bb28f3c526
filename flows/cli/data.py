"""The commands that show data: rows of a shard, rejected rows, and examples exported for other tools."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from flows.cli.commands import answer, execute, run_spec_of, store_of
from flows.cli.options import Columns, Count, JsonOption, Options, PipelinePath, Rows, RunOptions
from headway.errors import ConfigError, StoreError
from headway.messages import agree, counted

if TYPE_CHECKING:
    import pyarrow as pa


def cat(
    shards: Annotated[
        list[Path], Parameter(help=".tfrecord files, or folders of them; written by Headway or by another tool")
    ],
    /,
    *,
    rows: Annotated[Rows, Parameter(help="how many rows to print, or all")] = 10,
    columns: Annotated[Columns, Parameter(help="print only these columns")] = None,
    options: JsonOption = JsonOption(),
) -> int:
    """Rows of a shard as JSON lines."""
    from headway.records import interchange

    names = [name for name in (columns or "").split(",") if name]
    records = itertools.chain.from_iterable(interchange.rows(shard, names) for shard in shards)
    for row in itertools.islice(records, rows):
        print(json.dumps(row, ensure_ascii=False))
    return 0


def quarantine(
    pipeline: PipelinePath = ".",
    /,
    *,
    span: Annotated[str | None, Parameter(help="show only this span")] = None,
    limit: Annotated[Count, Parameter(metavar="ROWS", help="how many rows to show")] = 20,
    options: Options = Options(),
) -> int:
    """Show the rows that the latest run's ingest rejected, of all its spans or of one."""
    import pyarrow as pa

    from flows.records import records
    from headway.tabular import quarantine as quarantines

    loaded, store = store_of(pipeline, options)
    ingesting = [run for run in records(store) if run.pipeline == loaded.pipeline.name and run.ingested]
    if not ingesting:
        raise StoreError("no run has ingested anything yet", where=str(store.root), fix="headway ingest")
    ingests = ingesting[0].ingested
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
    whole = pa.concat_tables(tables)
    value = _summary(whole, read, limit)
    return answer(options, value, _text(value))


def _reasons(table: pa.Table) -> list[dict[str, Any]]:
    import pyarrow.compute as pc

    # the same fault at another byte is the same reason
    reason = pc.replace_substring_regex(table.column("reason"), r",( in the line)? at byte \d+$", "")
    table = table.set_column(table.schema.get_field_index("reason"), "reason", reason)
    counted = table.group_by(["column", "reason"]).aggregate([([], "count_all")])
    return (
        counted.sort_by([("count_all", "descending"), ("reason", "ascending")])
        .rename_columns(["column", "reason", "rows"])
        .to_pylist()
    )


def _summary(table: pa.Table, read: int, limit: int) -> dict[str, Any]:
    return {
        "rows": len(table),
        "read": read,
        "reasons": _reasons(table),
        "quarantine": table.slice(0, limit).to_pylist(),
    }


def _text(summary: dict[str, Any]) -> str:
    from flows.tell.text import text_table

    rows, read, rejected = summary["rows"], summary["read"], summary["quarantine"]
    if not rows:
        return f"nothing was rejected: {counted(read, 'row')} read"
    share = f"{rows:,} of {read:,} rows {agree(rows, 'was', 'were')} rejected ({rows / max(1, read):.3%})"
    cut = [row | {"value": row["value"] and row["value"][:60]} for row in rejected]
    lines = [share, "", text_table(summary["reasons"], whole=["reason"]), ""]
    lines.append(text_table(cut, whole=["reason"]))  # a reason ends with the byte
    if rows > len(rejected):
        lines.append(f"and {rows - len(rejected):,} more: --limit shows them")
    return "\n".join(lines)


def export_examples(
    pipeline: PipelinePath = ".",
    /,
    *,
    output: Annotated[Path, Parameter(metavar="FOLDER", help="a folder that does not exist yet")],
    split: Annotated[
        Literal["train", "eval", "test"] | None, Parameter(help="write only this split (default: all)")
    ] = None,
    tfds: Annotated[bool, Parameter(help="write a folder for tensorflow_datasets.builder_from_directory")] = False,
    options: RunOptions = RunOptions(),
) -> int:
    """Classic tf.Examples of the window, ingested first where it is not."""
    from headway.records import interchange
    from headway.tabular.splits import window_splits

    run_spec = run_spec_of(pipeline, options, last="ingest")
    record = execute(options, run_spec)
    outputs = record.ingested
    parts: dict[str, list[interchange.Part]] = {}
    for name, split_parts in window_splits(run_spec.loaded.pipeline.split, record.spans).items():
        if split not in (None, name):
            continue
        for span, part in split_parts:
            manifest = run_spec.store.find("ingest", outputs[span])
            assert manifest is not None
            folder = run_spec.store.local(run_spec.store.output("ingest", outputs[span]))
            if part in manifest.result["splits"]:
                parts.setdefault(name, []).append((folder, manifest.result, part))
    result = interchange.export_examples(parts, output, name=run_spec.loaded.pipeline.name, tfds=tfds)
    rows = {name: facts["rows"] for name, facts in result["splits"].items()}
    splits = ", ".join(f"{name} {counted(count, 'row')}" for name, count in rows.items())
    return answer(options, {"output": str(output), "rows": rows}, f"wrote {splits} to {output}")
