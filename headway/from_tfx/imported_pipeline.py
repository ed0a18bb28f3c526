"""A pipeline of Headway from what a TFX pipeline left: its schema, its examples and its preprocessing_fn.

done = import_pipeline(examples="examples/7", schema="schema.pbtxt", transform="taxi_transform.py", label="tips > 2")
done.draft, done.files, done.remarks
"""

import dataclasses
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from headway.errors import ConfigError
from headway.first_pipeline.column_choices import Choice
from headway.first_pipeline.draft import Draft, draft_of, look_at
from headway.first_pipeline.found_files import found_source
from headway.first_pipeline.label_choice import label_of, sole_label
from headway.first_pipeline.look import Look
from headway.from_tfx.example_folders import examples_path
from headway.from_tfx.output_columns import Translation, translate
from headway.from_tfx.recorder import read_preprocessing_fn
from headway.from_tfx.schema_file import ImportedSchema, read_schema
from headway.from_tfx.values import Raw, Remark, Rows
from headway.messages import counted, some
from headway.schema.pbtxt import to_text
from headway.schema_inference.column_types import infer

MODULE = "model"
_HEAD = '''\
"""Columns computed as {file} computes them: pipeline.yaml names this function, as {module}:preprocess."""

import tensorflow as tf


def preprocess(columns):
    """Compute columns of whole row groups; each is [rows], 0 or "" where it is missing."""
    return {{
'''


@dataclass(frozen=True)
class Imported:
    """A draft to be written, the files beside pipeline.yaml, and what was not translated."""

    draft: Draft
    files: dict[str, str]
    remarks: tuple[Remark, ...]


def import_pipeline(
    *, examples: str, schema: str | None, transform: str | None, label: str | None, name: str | None = None
) -> Imported:
    """Translate a TFX pipeline.

    Args:
        examples: an output folder of ExampleGen.
        schema: TFX's schema.pbtxt; None: the types are inferred from the examples.
        transform: the Python file with preprocessing_fn; None: the columns are as Headway would take them.
        label: a column, an output of preprocessing_fn that is one, or an expression; None: the one column that the schema
            keeps from serving, or that is called as labels are.

    Raises:
        ConfigError, DataError: a file is not there or cannot be read, or the label is not known.
    """
    imported = read_schema(schema) if schema is not None else None
    source = found_source(examples_path(examples))
    if imported is not None and imported.rename:
        source["rename"] = imported.rename
    source, look = look_at(source)
    outputs = None if transform is None else read_preprocessing_fn(transform, _inputs(imported, look))
    wanted = label_of(_label(label, imported, outputs, look), look.names)
    draft = draft_of(source, look, wanted, name=name)
    files, remarks = dict[str, str](), list[Remark]()
    if imported is not None:
        remarks += imported.remarks
        files["schema.pbtxt"] = to_text(imported.schema)
        draft = dataclasses.replace(draft, validation=imported.validation)
    if outputs is not None and transform is not None:
        done = translate(outputs, label=wanted.columns(), sole=wanted.column is not None, taken={*look.names})
        remarks += done.remarks
        draft = _with_columns(draft, done, imported.ignored if imported else {}, look, transform)
        if done.derived:
            files[f"{MODULE}.py"] = _module(done, transform)
    elif imported is not None:
        draft = _with_schema(draft, imported)
    given = ("/".join(PurePath(path).parts[-2:]) for path in (schema, transform, examples) if path)
    short = (f"not the same: {dataclasses.replace(remark, file=PurePath(remark.file).name)}" for remark in remarks)
    origin = (f"Written by headway import-tfx from {', '.join(given)}.", *short)
    return Imported(dataclasses.replace(draft, origin=origin), files, tuple(remarks))


def _inputs(imported: ImportedSchema | None, look: Look) -> dict[str, Raw]:
    """The columns that preprocessing_fn is given, as the schema, or else the examples, say they are."""
    if imported is None:  # each column is sparse, as without a shape in a schema
        schema, _ = infer(look.sample, {}, only=False, needed=frozenset(), where=look.config.path, typed=True)
        imported = ImportedSchema(schema, sparse={*schema.names()})
    old = {new: name for name, new in imported.rename.items()}
    limits = imported.validation.get("columns", {})
    return {
        old.get(column.name, column.name): Raw(
            column.name,
            column.type,
            required=column.name in imported.schema.required and "max_missing" not in limits.get(column.name, {}),
            sparse=column.name in imported.sparse,
            listed=bool(column.shape),
            category=column.name in imported.categories,
        )
        for column in imported.schema.columns
    }


def _label(
    label: str | None, imported: ImportedSchema | None, outputs: dict[str, Rows | Remark] | None, look: Look
) -> str:
    """The label as `headway init` would take it: a column, or an expression."""
    label = label or (imported.label if imported else None) or sole_label(look.names)
    if label is None:
        raise ConfigError(
            f"which column is to be predicted? There are {some(look.names, 20)}",
            where="--label",
            fix='--label COLUMN, or an expression, such as --label "tips > 0.2 * fare"',
        )
    if outputs is None or label in look.names or label not in outputs:
        return label
    output = outputs[label]
    if isinstance(output, Rows) and output.raw is not None:
        return output.raw.name
    why = Remark(*output.place, f"it is computed, as {output.source}") if isinstance(output, Rows) else output
    raise ConfigError(
        f"the label {label!r}, an output of preprocessing_fn, is not a column of the examples: {why.problem}",
        where=f"{why.file}:{why.line}",
        fix='say it as an expression of those columns: --label "tips > 0.2 * fare"',
    )


def _with_schema(draft: Draft, imported: ImportedSchema) -> Draft:
    """The draft of the data alone, with what the schema says of columns."""
    names = imported.schema.names()
    columns = {name: config for name, config in draft.columns.items() if name in names}
    choices = {choice.column: choice for choice in draft.choices}
    said = {name: Choice(name, "", "left out", why, "ignore") for name, why in imported.ignored.items()}
    for name in imported.categories:
        if name not in columns:
            said.setdefault(name, Choice(name, "integer", "feature", "int_domain.is_categorical", "vocabulary"))
    for name in {*said} & {*names} - draft.label.columns():
        choices[name], columns[name] = said[name], said[name].config
    return dataclasses.replace(
        draft, columns=columns, choices=tuple(choices[name] for name in names if name in choices)
    )


def _with_columns(draft: Draft, done: Translation, ignored: dict[str, str], look: Look, transform: str) -> Draft:
    """The draft with the columns of preprocessing_fn: `columns:`, and those that `preprocess:` computes."""
    if not done.columns and not done.derived:
        raise ConfigError(
            f"no output of preprocessing_fn could be translated: {'; '.join(map(str, done.remarks[:5]))}",
            where=transform,
            fix="leave out --transform to take the columns as headway init would",
        )
    before = {choice.column: choice for choice in draft.choices}
    label, reads = draft.label.columns(), frozenset[str]().union(*(rows.reads for rows in done.derived.values()))
    columns = done.columns | {name: "passthrough" for name in sorted(reads) if name not in done.columns}
    choices = []
    for name in look.names:
        old = before.get(name, Choice(name, "", "left out"))
        if name in done.columns:
            why = old.why if old.warning else done.why[name] if done.why[name] != name else ""
            choices.append(dataclasses.replace(old, use="feature", why=why, config=columns[name]))
        elif name in label:
            choices.append(Choice(name, old.type, "label", "the label is made of it"))
        else:
            why = "for model.py alone" if name in reads else ignored.get(name, "preprocessing_fn does not give it")
            choices.append(Choice(name, old.type, "left out", why, columns.get(name)))
    preprocess: dict[str, Any] = {}
    if done.derived:
        computed = {name: rows.op for name, rows in done.derived.items()}
        preprocess = {"function": f"{MODULE}:preprocess", "columns": computed}
        choices += [Choice(name, "computed", "feature", "in model.py", config) for name, config in computed.items()]
    return dataclasses.replace(
        draft, columns=columns, only=True, choices=tuple(choices), preprocess=preprocess, model={}
    )


def _module(done: Translation, transform: str) -> str:
    lines = [_HEAD.format(file=PurePath(transform).name, module=MODULE).rstrip("\n")]
    for name, rows in done.derived.items():
        lines.append(f"        {name!r}: {rows.source},")
        if rows.needs:
            flags = " & ".join(f"columns[{column + '__present'!r}]" for column in sorted(rows.needs))
            lines.append(f"        {name + '__present'!r}: {flags},")
    return "\n".join([*lines, "    }", ""])


def summary(done: Imported) -> str:
    """What was not translated, a line each; "" where all was."""
    listed = [f"not the same, {counted(len(done.remarks), 'thing')}:", *(f"  {remark}" for remark in done.remarks)]
    return "\n".join(listed) if done.remarks else ""
