"""The table of all columns: type, transform, and the reason for the transform.

    rows = column_table(columns, pipeline, notes, parameters)
    rows[0]                # {"column": "carrier", "type": "text", "transform": "vocabulary (16)", "why": "auto"}

The table has a row for every column of the source, also for columns that were left out or that make the label.
`headway schema --columns` prints it.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from flows.config.columns import Columns, new_columns, resolve, unknown_columns
from flows.config.pipeline import ColumnConfig, LoadedPipeline, Pipeline
from flows.config.window import choose_window
from flows.records import records
from headway.schema.columns import Column, Schema, type_text
from headway.schema.notes import Note
from headway.schema.pbtxt import to_text
from headway.sources.spans import files, select_window, spans
from tfcore.transform.fit import TransformRequest

LEFT_OUT = "left out"


def column_table(
    columns: Columns, pipeline: Pipeline, notes: Sequence[Note], parameters: Mapping[str, Any] | None
) -> list[dict[str, str]]:
    """Returns a row for each column, in the order of the schema; then rows for columns that the schema lacks.

    Args:
        notes: the notes of schema inference and of the transform's fit; a column's notes are its "why".
        parameters: the fitted transform as JSON; None: not fitted yet, and the table shows the config's transforms.
    """
    reasons: dict[str, list[str]] = {}
    for note in notes:
        if note.column is not None:
            reasons.setdefault(note.column, []).append(note.text)
    gone = {note.column for note in notes if note.left_out}
    configs = pipeline.column_configs()
    read = {column.name: column for column in columns.read}
    transforms = _fitted_transforms(parameters) if parameters is not None else None
    pooled = {of["column"]["name"] for of in (parameters or {}).get("fitted", ()) if of.get("pool")}
    rows = []
    for column in columns.schema.columns:
        own = read.get(column.name, column)
        transform, why = _way(own, column.name in read, configs.get(column.name), pipeline, transforms)
        if column.name in pooled and own.is_list and own.type != "bytes":
            why += ", pooled as its lists differ in length: say shape: n for a vector"
        if column.name in gone:
            transform, why = LEFT_OUT, ""
        rows.append(
            _row(column.name, type_text(own), transform, [*([why] if why else []), *reasons.pop(column.name, [])])
        )
    ignored = {name: ["role: ignore"] for name, config in configs.items() if config.role == "ignore"}
    stored = set(columns.schema.names())
    for name, why_ in {**ignored, **reasons}.items():
        if name not in stored:
            rows.append(_row(name, "", LEFT_OUT, why_))
    return rows


def _row(name: str, kind: str, transform: str, why: Sequence[str]) -> dict[str, str]:
    return {"column": name, "type": kind, "transform": transform, "why": "; ".join(why)}


def _way(
    column: Column, is_read: bool, config: ColumnConfig | None, pipeline: Pipeline, transforms: Mapping[str, str] | None
) -> tuple[str, str]:
    """Returns a column's transform and the reason for it."""
    if column.name in pipeline.label_columns() and not column.is_feature:
        return (
            LEFT_OUT,
            "the label is made of it" if column.name in pipeline.label.columns() else "a label is made of it",
        )
    if not is_read:
        return LEFT_OUT, "role: ignore" if config is not None else "the pipeline does not name it"
    if not column.is_feature:
        why = {
            "key": "the split reads it" if column.name in pipeline.split.columns() else "role: key",
            "ignore": "source.where reads it",
        }.get(column.role, f"role: {column.role}")
        return ("kept" if column.role in ("weight", "group", "passthrough") else LEFT_OUT), why
    auto = config is None or config.transform == "auto"
    why = "auto" if auto else "the pipeline says so"
    if column.role != "feature":
        why = f"role: {column.role}, and a feature"
    if auto and column.names_things:
        why += ", as its integers are names: say standardize for a quantity"
    if transforms is None:
        return "auto" if auto else ", ".join(op.op for op in config.transform if op != "auto"), why  # type: ignore[union-attr]
    return transforms.get(column.name, LEFT_OUT), why


def _fitted_transforms(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Returns {raw column: description of the model's inputs made from it}."""
    parts: dict[str, list[str]] = {}
    owners = {part["name"]: part for part in parameters.get("parts", [])}
    transforms: dict[str, str] = {}
    for fitted in parameters["fitted"]:
        name = fitted["column"]["name"]
        if name in owners:
            parts.setdefault(owners[name]["source"]["name"], []).append(owners[name]["part"])
            continue
        text = ", ".join(op["op"] for op in fitted["ops"])
        if fitted.get("size") is not None:
            text += f" ({fitted['size']:,} ids)"
        if fitted.get("pool"):
            text += f", pooled: {', '.join(fitted['pool'])}"
        transforms[name] = text
    return transforms | {name: f"date_parts: {', '.join(names)}" for name, names in parts.items()}


def current_table(loaded: LoadedPipeline) -> list[dict[str, str]]:
    """Returns the table from the pipeline, its schema file and its latest run that fitted a transform. Without a schema
    file, the types are inferred as a run would infer them."""
    pipeline, store = loaded.pipeline, loaded.open_store()
    window = select_window(spans(pipeline.source), choose_window(loaded, None).size, "latest", "allow")
    columns = resolve(loaded, window, functools.partial(files, pipeline.source))
    runs = [run for run in records(store) if run.pipeline == pipeline.name]
    notes = list(columns.notes)
    inferred = next((run for run in runs if run.columns), None)
    if inferred is not None and not columns.inferred:
        notes += inferred.notes
    parameters = None
    for run in runs:
        step = run.step(TransformRequest.name)
        manifest = store.find(step.stage, step.fingerprint) if step else None
        if manifest is not None:
            parameters = manifest.result["parameters"]
            notes += map(Note.model_validate, manifest.result["notes"])
            break
    notes = list(dict.fromkeys(notes))
    by_span = {span: files(pipeline.source, span) for span in window}
    why = f"{loaded.schema_file.name} does not have it"
    new = dict.fromkeys(unknown_columns(loaded, columns.schema, by_span[window[-1]]), why)
    for column in new_columns(loaded, columns.schema, by_span):
        lines = to_text(Schema(columns=(column,))).splitlines()
        feature = " ".join(line.strip() for line in lines if not line.startswith("#"))
        new[column.name] = f"{why}; to read it, add there: {feature}"
    known = {note.column for note in notes}
    notes += [Note(column=name, text=text, left_out=True) for name, text in new.items() if name not in known]
    return column_table(columns, pipeline, notes, parameters)
