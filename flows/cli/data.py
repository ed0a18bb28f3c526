"""The commands on data: init, quarantine, export-rows, schema."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from flows.cli.options import (
    Count,
    JsonOption,
    Options,
    PipelinePath,
    RunOptions,
    StageOptions,
    answer,
    context_of,
    execute,
    load_pipeline,
    store_of,
)
from headway.errors import ConfigError, StoreError
from headway.messages import agree, counted, some

if TYPE_CHECKING:
    from flows.pipeline.context import Context
    from headway.first_pipeline.draft import Draft
    from headway.first_pipeline.look import SourceSample
    from headway.records.row_files import Part
    from headway.tabular.label import LabelConfig

Split = Literal["train", "eval", "test"]
_COLUMNS = 24
"""The most rows in init's table of columns; if there are more columns, it shows those that need an explanation."""


def init(
    data: str,
    /,
    *,
    label: Annotated[str | None, Parameter(metavar="COLUMN|EXPRESSION")] = None,
    folder: Annotated[Path, Parameter(metavar="FOLDER", show_default=False)] = Path(),
    name: str | None = None,
    force: bool = False,
    options: JsonOption = JsonOption(),
) -> int:
    """Looks at data and writes a pipeline.yaml for it: source, label, columns and split.

    Args:
        data: Names the data: a file, a folder or a quoted glob.
        label: Says what is predicted: species, or "arr_delay > 15".
        folder: Says where pipeline.yaml is written (default: this folder).
        name: Names the pipeline and its model (default: from the data).
        force: Overwrites existing files.
    """
    from headway.first_pipeline.draft import draft_of, read_source
    from headway.first_pipeline.found_files import found_source
    from headway.first_pipeline.yaml_text import pipeline_text

    target = folder / "pipeline.yaml"
    _check_free([target, folder / "schema.pbtxt"], force)
    # as it is from here; links stay as they are
    place = data if "://" in data else os.path.abspath(Path(data).expanduser())  # noqa: PTH100
    source, look = read_source(found_source(place))
    draft = draft_of(source, look, _label(label, look), name=name)
    path = draft.source["path"]  # in the file it is relative to the folder, so that both can be moved together
    path = path if "://" in path else os.path.relpath(path, folder.resolve())
    _write(target, pipeline_text(draft, path=path))
    return answer(options, _draft_value(draft, target), _draft_text(draft, target))


def _label(text: str | None, look: SourceSample) -> LabelConfig:
    """Returns the label that --label names, else the only column with a name typical of labels.

    Raises:
        ConfigError: --label is not given, and no column or several have such a name.
    """
    from headway.first_pipeline.label_choice import label_of, likely_label, sole_label

    if text is not None:
        for name, safe in look.config.rename.items():
            text = text.replace(name, safe) if "/" in name else text
        return label_of(text, look.names)
    if (sole := sole_label(look.names)) is not None:
        return label_of(sole, look.names)
    raise ConfigError(
        f"which column is to be predicted? There are {some(look.names, 20)}",
        where="--label",
        fix=f"--label COLUMN, for example --label {likely_label(look.names)!r}; or an expression, as "
        '--label "arr_delay > 15"',
    )


def _draft_value(draft: Draft, target: Path) -> dict[str, object]:
    """Returns the answer of init for --json: what was found in the data, and the file that was written."""
    return {
        "pipeline": str(target),
        "name": draft.name,
        "label": draft.label.column or draft.label.expression,
        "task": draft.facts.task or draft.facts.kind,
        "split": draft.split.config,
        "columns": [{"column": c.column, "type": c.type, "use": c.use, "why": c.why} for c in draft.choices],
        "doubts": draft.doubts,
    }


def _check_free(files: list[Path], force: bool) -> None:
    """Raises ConfigError if one of the files exists, unless `force` is set."""
    if not force and (there := [str(file) for file in files if file.exists()]):
        raise ConfigError(
            f"there is {' and '.join(there)} already",
            fix="--force overwrites it, --folder NEW writes elsewhere",
        )


def _write(file: Path, text: str) -> None:
    """Checks and writes a pipeline.yaml, and deletes the schema.pbtxt beside it, which is of another pipeline."""
    from flows.config.pipeline import Pipeline
    from headway.config import load, read_value
    from headway.storage.atomic_io import replace_text, writing

    load(Pipeline, read_value(text), where=str(file))
    file.parent.mkdir(parents=True, exist_ok=True)
    with writing(file.parent):
        (file.parent / "schema.pbtxt").unlink(missing_ok=True)  # of the columns of another pipeline
        replace_text(file, text)


def _draft_text(draft: Draft, target: Path) -> str:
    """Returns the answer of init as text: the table of columns, rows, label, split, doubts, and the file written."""
    from flows.report.text import text_table

    shown, others = draft.choices, list[str]()
    if len(shown) > _COLUMNS:  # those that need a word
        shown = tuple(c for c in draft.choices if not c.by_auto and (c.why or c.config is not None))[:_COLUMNS]
        left_out = [c.column for c in draft.choices if c.by_auto]
        features = sum(c.use == "feature" for c in draft.choices) - sum(c.use == "feature" for c in shown)
        others = [f"  and {counted(features, 'more feature')}"]
        others += [f"  left out as they tell nothing of a row: {some(left_out, 6)}"] if left_out else []
    rows = [{"column": " ".join(c.column.split()), "type": c.type, "use": c.use, "why": c.why} for c in shown]
    features = sum(choice.is_learned for choice in draft.choices)
    lines = [text_table(rows, whole=("why",)), *others]
    lines += [
        "",
        f"data:   {counted(draft.rows, 'row')}{'' if draft.whole else ' looked at'}, {counted(features, 'feature')}",
        f"label:  {draft.label.column or draft.label.expression}, {draft.facts.text}",
        f"split:  {draft.split.text}",
        *(f"look:   {doubt}" for doubt in draft.doubts),
        f"wrote {target}; next: headway run{'' if target.parent == Path() else f' {target.parent}'}",
    ]
    return "\n".join(lines)


def quarantine(
    pipeline: PipelinePath = ".",
    /,
    *,
    span: str | None = None,
    limit: Annotated[Count, Parameter(metavar="ROWS")] = 20,
    options: Options = Options(),
) -> int:
    """Shows the rows that the latest run's ingest rejected, and says why.

    Args:
        span: Shows the rows of this span alone.
        limit: Says how many rows are shown.
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
    return answer(options, found, _quarantine_text(found))


@dataclass(frozen=True)
class Rejected:
    """The answer of `headway quarantine`: the rows that a run rejected."""

    rows: int
    read: int
    reasons: list[dict[str, str | int]]
    """Dicts of column, reason and number of rows, the most frequent first."""
    quarantine: list[dict[str, str | int | None]]
    """The first rejected rows, each with its file, row, reason and value."""


def _quarantine_text(found: Rejected) -> str:
    from flows.report.text import text_table

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
    """Writes the rows of a window for other tools: one table with split, label and prediction, or classic tf.Examples.

    The eval rows have the predictions of the window's model, which is trained first where there is none.

    Args:
        output: Names a .parquet or .csv file that does not exist yet; of examples a folder.
        split: Writes this split alone (default: all).
        format: Chooses one table, parquet or csv (default: by the ending of --output), or the ingested rows as classic
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
    """Returns the context with the window's outputs; if some are missing, a run makes them first."""
    from flows.pipeline.engine import look_ahead

    plan = look_ahead(context)
    # metrics are not needed, and once a model is promoted, nobody has measured it alone
    if plan.follows or not all(output.hit or output.stage == "measure" for output in plan.outputs):
        execute(options, context)
        plan = look_ahead(context)
    return plan


def _parts(context: Context, made: Context, split: str | None) -> dict[str, list[Part]]:
    """Returns {split: its ingested parts} of the window, for all splits or for `split` alone."""
    from headway.tabular.splits import window_splits

    ingested = made.ingested
    parts: dict[str, list[Part]] = {}
    for name, split_parts in window_splits(context.loaded.pipeline.split, made.spans).items():
        for span, part in split_parts if split in (None, name) else ():
            result = ingested[span].json()
            if part in result["splits"]:
                parts.setdefault(name, []).append((context.store.local(ingested[span].path), result, part))
    return parts


def _wrote(options: RunOptions, output: Path, rows: Mapping[str, int]) -> int:
    splits = ", ".join(f"{name} {counted(count, 'row')}" for name, count in rows.items())
    return answer(options, {"output": output, "rows": rows}, f"wrote {splits} to {output}")


def schema(
    pipeline: PipelinePath = ".",
    /,
    *,
    columns: bool = False,
    options: StageOptions = StageOptions(),
) -> int:
    """Prints the JSON Schema of pipeline.yaml, for editors; with --columns what became of each column.

    Args:
        columns: Shows each column's type and transform, and says why.
    """
    if columns:
        from flows.pipeline.column_table import current_table
        from flows.report.text import text_table

        rows = current_table(load_pipeline(pipeline, options))
        return answer(options, rows, text_table(rows, whole=("why",)))
    from flows.config.pipeline import json_schema

    print(json.dumps(json_schema(), indent=1))
    return 0
