"""Files of a drafted pipeline: none is overwritten unasked, and what is written loads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from headway.errors import ConfigError
from headway.messages import counted

if TYPE_CHECKING:
    from headway.first_pipeline.draft import Draft

_SHOWN = 40
"""Columns in the table; of more, those that need a word."""


def absolute(data: str) -> str:
    """A path as it is from here; links stay as they are."""
    return data if "://" in data else os.path.abspath(Path(data).expanduser())  # noqa: PTH100


def path_from(folder: Path, path: str) -> str:
    """A path as pipeline.yaml in `folder` says it: relative to it where it lies in or beside it."""
    if "://" in path:
        return path
    relative = os.path.relpath(path, folder.resolve())
    return path if relative.startswith("../..") else relative


def check_free(files: list[Path], force: bool, *, option: str) -> None:
    """Raise ConfigError where a file is there already."""
    if not force and (there := [str(file) for file in files if file.exists()]):
        raise ConfigError(
            f"there is {' and '.join(there)} already",
            fix=f"--force overwrites it, {option} NEW writes elsewhere",
        )


def write(folder: Path, texts: dict[str, str]) -> None:
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


def report(draft: Draft, target: Path) -> str:
    """What was found and written, for a person."""
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
