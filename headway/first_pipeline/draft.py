"""Drafts a pipeline for some data: makes every decision, before anything is written.

source, look = read_source(found_source("wine.csv"))
draft = draft_of(source, look, label_of("quality", look.names))
draft.split, draft.choices, draft.doubts
"""

import dataclasses
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headway.errors import DataError
from headway.first_pipeline.column_choices import Choice, choose_columns, statistics_of
from headway.first_pipeline.image_size import image_size
from headway.first_pipeline.label_choice import LabelFacts, facts_of
from headway.first_pipeline.look import MOST_REJECTED, SourceSample, TypedRows, sample_source, typed_rows
from headway.first_pipeline.split_choice import SplitChoice, choose_split
from headway.messages import agree, counted
from headway.schema.columns import LABEL
from headway.sources.config import SourceConfig
from headway.storage.filesystem import has_magic
from headway.tabular.expressions import as_written
from headway.tabular.label import LabelConfig

_FEWEST_ROWS, _FEWEST_OF_A_CLASS = 10, 2
"""The least rows with a label, and the least rows of the rarer of two classes: train and eval need both."""


@dataclass(frozen=True)
class Draft:
    name: str
    source: dict[str, Any]
    label: LabelConfig
    facts: LabelFacts
    choices: tuple[Choice, ...]
    split: SplitChoice
    rows: int
    whole: bool
    """Whether all rows were read."""
    columns: dict[str, Any] = field(default_factory=dict)
    """The entries of `columns:`, by column."""
    only: bool = False
    """Whether `columns:` names all that are read, so that no other is learned from."""
    notes: tuple[str, ...] = ()
    """Sentences about the data that a person should read."""

    @property
    def doubts(self) -> list[str]:
        """What a person should look at: the notes on the data, and the doubts about single columns."""
        return [*self.notes, *(f"{choice.column} {choice.why}" for choice in self.choices if choice.warning)]


def read_source(source: dict[str, Any]) -> tuple[dict[str, Any], SourceSample]:
    """Returns the source section and sampled rows. It renames columns with a slash or outer blanks, unless names would clash.

    Raises:
        ConfigError, DataError: the files cannot be read.
    """
    look = sample_source(SourceConfig.model_validate(source))
    rename = {name: new for name in look.names if (new := re.sub(r"\s*/\s*", "_per_", name.strip())) != name and new}
    if not rename or len({*look.names} - {*rename} | {*rename.values()}) < len(look.names):
        return source, look
    changed = source | {"rename": rename}
    return changed, sample_source(SourceConfig.model_validate(changed))


def draft_of(source: Mapping[str, Any], look: SourceSample, label: LabelConfig, *, name: str | None = None) -> Draft:
    """Decides on the label, the columns and the split; returns the draft of the pipeline.

    Raises:
        ConfigError, DataError: the label does not exist or cannot be computed, there are too few rows, or nothing to learn from.
    """
    source, look, label = _renamed(dict(source), look, label)
    seen = typed_rows(look, label)
    statistics = statistics_of(seen)
    facts = facts_of(seen.label, statistics.columns[LABEL], where=f"--label {label.column or label.expression}")
    _refuse_too_few(seen, facts, look.config.path)
    notes = [*seen.doubts]
    if facts.rare and label.column is not None:
        source["where"] = f"not ({as_written(label.column)} in [{', '.join(map(repr, facts.rare))}])"
        seen, note = _without_rare(seen, label, facts, statistics.columns[LABEL].distinct)
        notes.append(note)
        statistics = statistics_of(seen)
    if seen.rejected:
        stops = seen.rejected > MOST_REJECTED * seen.read
        what = "would stop a run at validation.max_quarantined: 0.01" if stops else "will be rejected"
        text = f"{seen.rejected:,} of {counted(seen.read, 'row')} cannot be read as the first rows are, and {what}"
        notes.append(f"{text}; 'headway quarantine' shows them after a run")
    images = look.config.format == "images"
    choices = _of_images(look, label) if images else choose_columns(seen, statistics, label.columns(), facts)
    split = choose_split(look, seen, label, facts, choices)
    choices = [split.columns.get(choice.column, choice) for choice in choices]
    choices += [Choice(name, "mixed", "left out", why, "ignore") for name, why in look.clashes(label).items()]
    if not any(choice.is_learned for choice in choices):
        reasons = "; ".join(f"{choice.column}: {choice.why}" for choice in choices[:10])
        raise DataError(
            f"no column is left to learn from: {reasons}",
            where=look.config.path,
            fix="bring columns that say something of a row",
        )
    return Draft(
        name=name or _name(look.config.path),
        source=source,
        label=label,
        facts=facts,
        choices=tuple(choices),
        split=split,
        rows=seen.read,
        whole=seen.whole,
        columns={choice.column: choice.config for choice in choices if choice.config is not None},
        only=images,
        notes=tuple(notes),
    )


def _renamed(
    source: dict[str, Any], look: SourceSample, label: LabelConfig
) -> tuple[dict[str, Any], SourceSample, LabelConfig]:
    """Returns source, look and label. A column that is called `label` but is not the label is renamed in all three."""
    if LABEL not in look.names or label.column == LABEL:
        return source, look, label
    other = LABEL + "_column"
    if LABEL in label.columns():
        label = LabelConfig(expression=re.sub(rf"\b{LABEL}\b", other, label.expression or ""))
    source["rename"] = {**source.get("rename", {}), LABEL: other}
    return source, sample_source(SourceConfig.model_validate(source)), label


def _without_rare(seen: TypedRows, label: LabelConfig, facts: LabelFacts, classes: int) -> tuple[TypedRows, str]:
    """Returns the rows without those of rare classes, and a note that says how many rows were removed. Raises DataError if fewer
    than two classes are left."""
    stored = [value.encode() if isinstance(value, str) else value for value in facts.rare]
    rare = pc.is_in(seen.label, value_set=pa.array(stored, seen.label.type))
    if len(facts.rare) + 2 > classes:
        raise DataError(
            f"fewer than two of the {classes:,} classes have 5 rows or more",
            where=f"--label {label.column or label.expression}",
            fix="bring more rows, or join classes by an expression, such as --label \"kind in ['a', 'b']\"",
        )
    note = (
        f"{counted(rare.true_count, 'row')} of {counted(len(facts.rare), 'class', 'classes')} with fewer than 5 rows "
        f"{agree(rare.true_count, 'is', 'are')} filtered (source.where): too few to learn and to judge"
    )
    return dataclasses.replace(seen, rows=seen.rows.filter(pc.invert(rare))), note


def _refuse_too_few(seen: TypedRows, facts: LabelFacts, path: str) -> None:
    """Raises a DataError if there are too few rows for train and eval, or too few rows of the rarer of two classes."""
    rows, fewest = seen.rows.num_rows, seen.rows.num_rows
    if facts.kind == "binary":
        fewest = min(pc.struct_field(pc.value_counts(seen.label), 1).to_pylist())
    if rows < _FEWEST_ROWS or fewest < _FEWEST_OF_A_CLASS:
        few = counted(fewest, "row of the rarer class", "rows of the rarer class")
        raise DataError(
            f"{few if rows >= _FEWEST_ROWS else counted(rows, 'row')} with a label: too few for train and eval",
            where=path,
            fix=f"bring at least {_FEWEST_ROWS} rows, {_FEWEST_OF_A_CLASS} of each class; hundreds to judge a model",
        )


def _of_images(look: SourceSample, label: LabelConfig) -> list[Choice]:
    """Returns the choices for image files: the images are features; the paths are kept, to show the worst predictions."""
    size = image_size(look.sample.table.column("image").combine_chunks())
    height, width, channels = size or (32, 32, 3)
    config = {"image": {"height": height, "width": width, "channels": channels}}
    why = f"{height} x {width} pixels, {'grey' if channels == 1 else 'colour'}"
    return [
        Choice("image", "image", "feature", why, config),
        Choice("path", "text", "kept", "the file's name", "passthrough"),
        *(Choice(name, "text", "label", "the label is made of it") for name in sorted(label.columns())),
    ]


def _name(path: str) -> str:
    """Returns a name for the pipeline, made from the path of its data."""
    parts = [part for part in PurePosixPath(path).parts if not has_magic(part) and "{" not in part]
    stem = parts[-1].split(".")[0] if parts else ""
    if stem.lower() in ("data", "train", "dataset", "") and len(parts) > 1:
        stem = parts[-2]
    stem = unicodedata.normalize("NFKD", stem.replace("ß", "ss")).encode("ascii", "ignore").decode()
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", stem).strip("_-")[:63]
    return name if re.match(r"[A-Za-z]", name) else f"model_{name}".rstrip("_")[:63]
