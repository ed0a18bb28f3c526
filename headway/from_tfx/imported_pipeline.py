"""A pipeline of Headway from what a TFX pipeline left: its schema, its examples and its preprocessing_fn.

done = import_pipeline(examples="examples/7", schema="schema.pbtxt", transform="taxi_transform.py", label="tips_xf")
done.draft, done.files, done.remarks
"""

from __future__ import annotations

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
from headway.from_tfx.label_expression import expression_of
from headway.from_tfx.output_columns import Translation, translate
from headway.from_tfx.preprocessing_fn import read_preprocessing_fn
from headway.from_tfx.remarks import Remark
from headway.from_tfx.schema_file import ImportedSchema, read_schema
from headway.from_tfx.symbols import Analyzed, Filled, Raw, Unknown
from headway.messages import counted, some
from headway.schema.columns import Schema
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
        label: a column, an output of preprocessing_fn, or an expression; None: the one column that the schema keeps from
            serving, or that is called as labels are.

    Raises:
        ConfigError, DataError: a file is not there or cannot be read, or the label is not known.
    """
    imported = read_schema(schema) if schema is not None else None
    source = found_source(examples_path(examples))
    if imported is not None and imported.rename:
        source["rename"] = imported.rename
    source, look = look_at(source)
    remarks = list(imported.remarks) if imported else []
    outputs = None if transform is None else read_preprocessing_fn(transform, _inputs(imported, look))
    label = _label(label, imported, outputs.values if outputs else {}, look)
    draft = draft_of(source, look, label_of(label, look.names), name=name)
    files, unread = dict[str, str](), dict[str, str]()
    if imported is not None:
        remarks += _unlike(imported, look, schema or "")
        files["schema.pbtxt"] = to_text(imported.schema)
        unread = imported.ignored
        draft = dataclasses.replace(draft, validation=_known(imported, look))
    if outputs is not None and transform is not None:
        columns = draft.label.columns()
        done = translate(outputs, label=columns, sole=draft.label.column is not None, taken={*look.names})
        remarks += done.remarks
        draft, more = _with_columns(draft, done, unread, look, transform)
        files |= more
    elif imported is not None:
        draft = _with_schema(draft, imported)
    origin = (
        f"Written by headway import-tfx from {', '.join(_short(given) for given in (schema, transform, examples) if given)}.",
        *(f"not the same: {_short_place(remark)}" for remark in remarks),
    )
    return Imported(dataclasses.replace(draft, origin=origin), files, tuple(remarks))


def _short(path: str) -> str:
    return "/".join(PurePath(path).parts[-2:])


def _short_place(remark: Remark) -> str:
    return str(dataclasses.replace(remark, file=PurePath(remark.file).name))


def _inputs(imported: ImportedSchema | None, look: Look) -> dict[str, Raw]:
    """The columns that preprocessing_fn is given, as the schema, or else the examples, say they are."""
    if imported is None:
        schema, _ = infer(look.sample, {}, only=False, needed=frozenset(), where=look.config.path, typed=True)
        sparse = {column.name for column in schema.columns}  # as without a shape in a schema
    else:
        schema, sparse = imported.schema, {*imported.sparse}
    new = {name: old for old, name in (imported.rename if imported else {}).items()}
    return {
        new.get(column.name, column.name): Raw(
            column.name,
            column.type,
            required=column.name in schema.required and _always(imported, column.name),
            sparse=column.name in sparse,
            least=_least(schema, column.name),
            listed=bool(column.shape),
            category=imported is not None and column.name in imported.categories,
        )
        for column in schema.columns
    }


def _always(imported: ImportedSchema | None, name: str) -> bool:
    limits = imported.validation.get("columns", {}) if imported else {}
    return "max_missing" not in limits.get(name, {})


def _least(schema: Schema, name: str) -> float | None:
    return schema.ranges.get(name, (None, None))[0]


def _label(label: str | None, imported: ImportedSchema | None, outputs: dict[str, Any], look: Look) -> str:
    """The label as `headway init` would take it: a column, or an expression."""
    given = label
    if label is None:
        label = (imported.label if imported else None) or sole_label(look.names)
    if label is None:
        raise ConfigError(
            f"which column is to be predicted? There are {some(look.names, 20)}",
            where="--label",
            fix='--label COLUMN, an output of preprocessing_fn, or an expression, such as --label "tips > 0.2 * fare"',
        )
    if label in look.names or label not in outputs:
        return label
    value = outputs[label]
    value = value.of if isinstance(value, Analyzed) else value
    value = value.of if isinstance(value, Filled) else value
    if isinstance(value, Raw):
        return value.name
    if isinstance(value, Unknown):
        said = value.remark
        raise ConfigError(
            f"the label {given!r} cannot be read: {said.problem}",
            where=f"{said.file}:{said.line}",
            fix='say it as an expression of the raw columns: --label "tips > 0.2 * fare"',
        )
    expression = expression_of(value)
    if expression is None:
        raise ConfigError(
            f"the output {given!r} of preprocessing_fn has no expression that says the same",
            where="--label",
            fix='say it as an expression of the raw columns: --label "tips > 0.2 * fare"',
        )
    return expression


def _unlike(imported: ImportedSchema, look: Look, path: str) -> list[Remark]:
    """Columns that only the schema has, or only the examples."""
    ours, theirs = {column.name for column in imported.schema.columns}, {*look.names}
    remarks = []
    if only := sorted(ours - theirs):
        remarks.append(
            Remark(
                path, 0, f"the first examples have no {some(only, 8)}: {'they are' if len(only) > 1 else 'it is'} null"
            )
        )
    if only := sorted(theirs - ours):
        remarks.append(Remark(path, 0, f"the schema has no {some(only, 8)}, which the examples have: left out"))
    return remarks


def _known(imported: ImportedSchema, look: Look) -> dict[str, Any]:
    return {key: value for key, value in imported.validation.items() if value}


def _with_schema(draft: Draft, imported: ImportedSchema) -> Draft:
    """The draft of the data alone, with what the schema says of columns."""
    names = imported.schema.names()
    columns = {name: config for name, config in draft.columns.items() if name in names}
    choices = {choice.column: choice for choice in draft.choices}
    label = draft.label.columns()
    for name in imported.categories:
        if name not in label and name not in columns:
            columns[name] = "vocabulary"
            choices[name] = Choice(name, "integer", "feature", "int_domain.is_categorical", "vocabulary")
    for name, why in imported.ignored.items():
        if name in names and name not in label:
            columns[name] = "ignore"
            choices[name] = Choice(name, choices[name].type if name in choices else "", "left out", why, "ignore")
    listed = tuple(choices[name] for name in names if name in choices)
    return dataclasses.replace(draft, columns=columns, choices=listed)


def _with_columns(
    draft: Draft, done: Translation, ignored: dict[str, str], look: Look, transform: str
) -> tuple[Draft, dict[str, str]]:
    """The draft with the columns of preprocessing_fn, and the module that computes some of them."""
    files = dict[str, str]()
    before = {choice.column: choice for choice in draft.choices}
    label = draft.label.columns()
    columns = {name: _config(config) for name, config in done.columns.items()}
    choices = []
    for name in look.names:
        kind = before[name].type if name in before else ""
        if name in columns:
            output = done.why[name]
            doubt = name in before and before[name].warning
            why = before[name].why if doubt else "" if output == name else output
            choices.append(Choice(name, kind, "feature", why, columns[name], warning=doubt))
        elif name in label:
            choices.append(Choice(name, kind, "label", "the label is made of it"))
        else:
            choices.append(Choice(name, kind, "left out", ignored.get(name, "preprocessing_fn does not give it")))
    preprocess: dict[str, Any] = {}
    if done.derived:
        for name in sorted(frozenset().union(*(derived.reads for derived in done.derived.values()))):
            if name not in columns:
                columns[name] = "passthrough"
        choices = [_passed(choice) if columns.get(choice.column) == "passthrough" else choice for choice in choices]
        preprocess = {
            "function": f"{MODULE}:preprocess",
            "columns": {name: _config(derived.config) for name, derived in done.derived.items()},
        }
        files[f"{MODULE}.py"] = _module(done, transform)
    if not columns:
        raise ConfigError(
            "no output of preprocessing_fn could be translated: "
            + "; ".join(str(remark) for remark in done.remarks[:5]),
            where=transform,
            fix="leave out --transform to take the columns as headway init would",
        )
    made = tuple(
        Choice(name, "computed", "feature", "in model.py", _config(derived.config))
        for name, derived in done.derived.items()
    )
    new = dataclasses.replace(
        draft, columns=columns, only=True, choices=(*choices, *made), preprocess=preprocess, model={}
    )
    return new, files


def _config(config: Any) -> Any:
    return {} if config == "auto" else config


def _passed(choice: Choice) -> Choice:
    return Choice(choice.column, choice.type, choice.use, "for model.py alone", "passthrough")


def _module(done: Translation, transform: str) -> str:
    lines = [_HEAD.format(file=PurePath(transform).name, module=MODULE).rstrip("\n")]
    for name, derived in done.derived.items():
        lines.append(f"        {name!r}: {derived.source},")
        if derived.present:
            flags = " & ".join(f"columns[{column + '__present'!r}]" for column in derived.present)
            lines.append(f"        {name + '__present'!r}: {flags},")
    return "\n".join([*lines, "    }", ""])


def summary(done: Imported) -> str:
    """What was not translated, a line each; "" where all was."""
    if not done.remarks:
        return ""
    return "\n".join(
        [f"not the same, {counted(len(done.remarks), 'thing')}:", *(f"  {remark}" for remark in done.remarks)]
    )
