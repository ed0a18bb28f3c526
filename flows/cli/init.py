"""`headway init`: from data alone to a pipeline.yaml that runs."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from flows.cli.options import JsonOption
from headway.errors import ConfigError, HeadwayError
from headway.messages import counted, some

if TYPE_CHECKING:
    from headway.first_pipeline.draft import Draft
    from headway.first_pipeline.look import Look
    from headway.tabular.label import LabelConfig

_ASKED = 3
_SHOWN = 40
"""Columns in the table; of more, those that need a word."""


def init(
    data: str,
    /,
    *,
    label: Annotated[str | None, Parameter(metavar="COLUMN|EXPRESSION")] = None,
    folder: Annotated[Path, Parameter(metavar="FOLDER", show_default=False)] = Path(),
    name: str | None = None,
    module: Literal["model", "loss", "metric", "preprocess"] | None = None,
    force: bool = False,
    options: JsonOption = JsonOption(),
) -> int:
    """Look at data and write a pipeline.yaml for it: source, label, columns and split.

    Args:
        data: a file, a folder or a quoted glob.
        label: what to predict: species, or "arr_delay > 15".
        folder: where to write pipeline.yaml (default: this folder).
        name: the name of the pipeline and its model (default: from the data).
        module: also write a Python file with a Keras model, a loss, a metric or a preprocess function to start from, and a test.
        force: overwrite existing files.
    """
    from flows.cli.commands import answer
    from headway.first_pipeline.draft import draft_of, look_at
    from headway.first_pipeline.found_files import found_source
    from headway.first_pipeline.module_files import NAMES, computed, module_files
    from headway.first_pipeline.yaml_text import pipeline_text

    target = folder / "pipeline.yaml"
    names = ["pipeline.yaml", "schema.pbtxt", *([f"{NAMES[module]}.py", f"test_{NAMES[module]}.py"] if module else [])]
    _check_free([folder / name for name in names], force)
    source, look = look_at(found_source(_absolute(data)))
    draft = draft_of(source, look, _label(label, look, ask=not options.json and sys.stdin.isatty()), name=name)
    texts = {} if module is None else module_files(module, draft)
    draft = replace(draft, preprocess=computed(draft)) if module == "preprocess" else draft
    texts["pipeline.yaml"] = pipeline_text(draft, path=_path_from(folder, draft.source["path"]), module=module)
    _write(folder, texts)
    return answer(options, _value(draft, target), _report(draft, target))


def _label(text: str | None, look: Look, *, ask: bool) -> LabelConfig:
    """The label that was named, or is certain, or is asked for.

    Raises:
        ConfigError: it is not known and nobody can be asked.
    """
    from headway.first_pipeline.label_choice import label_of, likely_label, sole_label

    if text is not None:
        for name, safe in look.config.rename.items():
            text = text.replace(name, safe) if "/" in name else text
        return label_of(text, look.names)
    if (sole := sole_label(look.names)) is not None:
        return label_of(sole, look.names)
    likely = likely_label(look.names)
    if not ask:
        raise ConfigError(
            f"which column is to be predicted? There are {some(look.names, 20)}",
            where="--label",
            fix=f'--label COLUMN, for example --label {likely!r}; or an expression, as --label "arr_delay > 15"',
        )
    print(f"columns: {some(look.names, 40)}", file=sys.stderr)
    for _ in range(_ASKED):
        print(f"what to predict, a column or an expression [{likely}]: ", end="", file=sys.stderr, flush=True)
        typed = sys.stdin.readline()
        if not typed:
            break
        try:
            return label_of(typed.strip() or likely, look.names)
        except HeadwayError as error:
            print(error, file=sys.stderr)
    raise ConfigError("no label was given", where="--label", fix="--label COLUMN")


def _value(draft: Draft, target: Path) -> dict[str, object]:
    """Return what was found and written, for --json."""
    return {
        "pipeline": str(target),
        "name": draft.name,
        "label": draft.label.column or draft.label.expression,
        "task": draft.facts.task or draft.facts.kind,
        "split": draft.split.config,
        "columns": [{"column": c.column, "type": c.type, "use": c.use, "why": c.why} for c in draft.choices],
        "doubts": draft.doubts,
    }


def _absolute(data: str) -> str:
    """A path as it is from here; links stay as they are."""
    return data if "://" in data else os.path.abspath(Path(data).expanduser())  # noqa: PTH100


def _path_from(folder: Path, path: str) -> str:
    """A path as pipeline.yaml in `folder` says it: relative to it where it lies in or beside it."""
    if "://" in path:
        return path
    relative = os.path.relpath(path, folder.resolve())
    return path if relative.startswith("../..") else relative


def _check_free(files: list[Path], force: bool) -> None:
    """Raise ConfigError where a file is there already."""
    if not force and (there := [str(file) for file in files if file.exists()]):
        raise ConfigError(
            f"there is {' and '.join(there)} already",
            fix="--force overwrites it, --folder NEW writes elsewhere",
        )


def _write(folder: Path, texts: dict[str, str]) -> None:
    """Write a pipeline's files, if it loads."""
    from flows.config.pipeline import Pipeline
    from headway.config import load, read_value
    from headway.storage.atomic_io import replace_text, writing

    file = folder / "pipeline.yaml"
    load(Pipeline, read_value(texts["pipeline.yaml"]), where=str(file))
    folder.mkdir(parents=True, exist_ok=True)
    with writing(folder):
        if "schema.pbtxt" not in texts:
            (folder / "schema.pbtxt").unlink(missing_ok=True)  # of the columns of another pipeline
        for name, text in texts.items():
            replace_text(folder / name, text)


def _report(draft: Draft, target: Path) -> str:
    """Return what was found and written, for a person."""
    from flows.tell.rendering.cells import text_table

    shown = draft.choices
    if len(shown) > _SHOWN:
        shown = tuple(c for c in draft.choices if c.why or c.config is not None)[:_SHOWN]
    rows = [{"column": " ".join(c.column.split()), "type": c.type, "use": c.use, "why": c.why} for c in shown]
    features = sum(choice.is_learned for choice in draft.choices)
    lines = [text_table(rows, whole=("why",))]
    if len(draft.choices) > len(shown):
        lines.append(f"  and {counted(len(draft.choices) - len(shown), 'more feature')} as they are")
    lines += [
        "",
        f"data:   {counted(draft.rows, 'row')}{'' if draft.whole else ' looked at'}, {counted(features, 'feature')}",
        f"label:  {draft.label.column or draft.label.expression}, {draft.facts.text}",
        f"split:  {draft.split.text}",
        *(f"look:   {doubt}" for doubt in draft.doubts),
        f"wrote {target}; next: headway run{'' if target.parent == Path() else f' {target.parent}'}",
    ]
    return "\n".join(lines)
