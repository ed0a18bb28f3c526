"""The commands that look at data: rows of a shard, what was rejected, and examples for others."""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flows.commands import answer, execute, located_of, store_of, trip_of
from flows.tables import text_table
from headway import quarantine as quarantines
from headway.errors import ConfigError, StoreError
from headway.splits import window_splits
from headway.words import agree, counted


def cat(options: argparse.Namespace) -> int:
    """Rows of a shard as JSON lines."""
    from headway.interchange import rows

    wanted = [name for name in (options.columns or "").split(",") if name]
    found = itertools.chain.from_iterable(rows(Path(shard), wanted) for shard in options.shards)
    for row in itertools.islice(found, options.rows):
        print(json.dumps(row, ensure_ascii=False))
    return 0


def quarantine(options: argparse.Namespace) -> int:
    """What the latest run's ingest rejected, or that of one span."""
    located, store = store_of(options)
    found = [run for run in store.runs() if run.get("pipeline") == located.pipeline.name and _ingests(run)]
    if not found:
        raise StoreError("no run has ingested anything yet", where=str(store.root), fix="headway ingest")
    ingests = _ingests(found[0])
    if options.span is not None and options.span not in ingests:
        raise ConfigError(
            f"the latest run has no span {options.span!r}", where="--span", fix=f"it has: {', '.join(ingests)}"
        )
    tables, read = [], 0
    for span, fingerprint in ingests.items():
        manifest = store.find("ingest", fingerprint)
        if manifest is None or options.span not in (None, span):
            continue
        read += manifest.counts.read if manifest.counts is not None else 0
        table = quarantines.read(store.local(store.output("ingest", fingerprint)))
        tables.append(table.add_column(0, "span", pa.array([span] * len(table), pa.string())))
    whole = pa.concat_tables(tables)
    answer(options, _summary(whole, read, options.limit), _told(whole, read, options.limit))
    return 0


def _ingests(run: dict[str, Any]) -> dict[str, str]:
    """{span: fingerprint} of what a run ingested or found ingested."""
    stages = run.get("stages", [])
    return {s["title"].removeprefix("ingest "): s["fingerprint"] for s in stages if s["stage"] == "ingest"}


def _reasons(table: pa.Table) -> list[dict[str, Any]]:
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


def _told(table: pa.Table, read: int, limit: int) -> str:
    if not len(table):
        return f"nothing was rejected: {counted(read, 'row')} read"
    share = len(table) / max(1, read)
    lines = [
        f"{len(table):,} of {read:,} rows {agree(len(table), 'was', 'were')} rejected ({share:.3%})",
        "",
        text_table(_reasons(table), whole=["reason"]),
        "",
    ]
    shown = table.slice(0, limit)
    shown = shown.set_column(
        shown.schema.get_field_index("value"), "value", pc.utf8_slice_codeunits(shown.column("value"), 0, 60)
    )
    lines.append(text_table(shown.to_pylist(), whole=["reason"]))  # a reason ends with the byte
    if len(table) > limit:
        lines.append(f"and {len(table) - limit:,} more: --limit shows them")
    return "\n".join(lines)


def export_examples(options: argparse.Namespace) -> int:
    """Classic tf.Examples of the window, ingested first where it is not."""
    from headway import interchange

    trip = trip_of(options, last="ingest")
    record = execute(options, trip)
    outputs = _ingests(record)
    parts: dict[str, list[interchange.Part]] = {}
    for split, found in window_splits(located_of(options).pipeline.split, record["spans"]).items():
        if options.split not in (None, split):
            continue
        for span, part in found:
            manifest = trip.store.find("ingest", outputs[span])
            assert manifest is not None
            folder = trip.store.local(trip.store.output("ingest", outputs[span]))
            if part in manifest.result["splits"]:
                parts.setdefault(split, []).append((folder, manifest.result, part))
    out = Path(options.output)
    result = interchange.export_examples(parts, out, name=trip.located.pipeline.name, tfds=options.tfds)
    rows = {split: facts["rows"] for split, facts in result["splits"].items()}
    told = ", ".join(f"{split} {counted(count, 'row')}" for split, count in rows.items())
    answer(options, {"output": str(out), "rows": rows}, f"wrote {told} to {out}")
    return 0
