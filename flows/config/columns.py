"""The columns that a pipeline reads, stores and learns from.

    columns = resolve(loaded, spans_of_the_window, files_of_a_span)
    columns.read, columns.stored, columns.notes
    columns = columns.completed(statistics)            # in the first run: adds domains and presence
    columns = columns.freeze(loaded)                   # once validation has passed: writes the schema file

The schema comes from the file beside the pipeline. Without it, types are inferred from samples of the window's spans,
the window's statistics complete the schema, and once validation has passed, it is written to the file, with a note.
Columns that the label is made of, keys and times never become features by themselves.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from flows.config.pipeline import LoadedPipeline, Pipeline
from headway.errors import ConfigError
from headway.evaluation.predictions import OWN
from headway.evaluation.slices import slice_columns
from headway.messages import agree, counted, some
from headway.schema.columns import LABEL, Column, Role, Schema, column_yaml, named_for, suggest
from headway.schema.notes import Note
from headway.schema.pbtxt import from_text, to_text, with_split
from headway.schema_inference.column_types import PREFIX_ROWS, infer, with_statistics
from headway.schema_inference.split_columns import few_distinct, row_columns, without_label
from headway.sources.base import InputFile, sample_spans
from headway.sources.config import FORMATS, CsvConfig
from headway.sources.sample import Sample
from headway.sources.spans import open_source
from headway.statistics.split_statistics import SplitStatistics
from headway.storage.atomic_io import replace_text
from headway.tabular.expressions import parse
from tfcore.transform.column_config import ColumnConfig, apply_config, check_columns, is_stored
from tfcore.transform.config import ColumnTransform, check_chains


@dataclass(frozen=True)
class Columns:
    """The schema of a pipeline, and which of its columns a run reads, stores, and hashes to choose a row's split."""

    schema: Schema
    read: tuple[Column, ...]
    """The columns that ingest reads, with their roles."""
    stored: tuple[str, ...]
    notes: tuple[Note, ...]
    inferred: bool
    """Whether the schema was inferred, since the schema file does not exist yet."""
    hashed: tuple[Column, ...] = ()
    """The columns whose values decide a row's split, by a hash, if the split has no key; some may not be in `read`."""
    by_place: bool = False
    """Whether the hash of a split without a key also covers a row's place: its file and its number in the file."""
    completes: bool = False
    """Whether `freeze` only adds the columns of a split without a key to a schema file that exists."""

    def completed(self, splits: Sequence[SplitStatistics]) -> "Columns":
        """Returns the columns with the schema completed by the first window's statistics: domains and presence."""
        return dataclasses.replace(self, schema=with_statistics(self.schema, splits))

    def freeze(self, loaded: LoadedPipeline) -> "Columns":
        """Write the schema file, or add the split's columns to the existing one; returns the columns as frozen."""
        if self.completes:
            text = loaded.schema_file.read_text(encoding="utf-8")
            replace_text(loaded.schema_file, with_split(text, self.schema.split, by_place=self.schema.split_by_place))
            return dataclasses.replace(self, completes=False)
        replace_text(loaded.schema_file, to_text(self.schema))
        note = Note(text=f"the schema was inferred from this window and frozen in {loaded.schema_file}")
        return dataclasses.replace(self, inferred=False, notes=(*self.notes, note))

    def auto_features(self, pipeline: Pipeline) -> tuple[str, ...]:
        """Returns the features whose transform Headway chooses, without `evaluation.item`; empty if there is a preprocess."""
        if pipeline.preprocess is not None:
            return ()
        configs, item = pipeline.column_configs(), pipeline.evaluation.item
        features = (column.name for column in self.read if column.is_feature and column.name != item)
        return tuple(name for name in features if name not in configs or configs[name].transform == "auto")

    def transforms(self, configs: dict[str, ColumnConfig]) -> dict[str, ColumnTransform]:
        """Returns {feature: its configured transform}; features without a config are left out."""
        features = {column.name for column in self.read if column.is_feature}
        return {name: config.column_transform() for name, config in configs.items() if name in features}

    def derived(self, configs: dict[str, ColumnConfig]) -> dict[str, ColumnTransform]:
        """Returns {column: its configured transform} for the columns that the schema lacks, which preprocess makes."""
        return {
            name: config.column_transform()
            for name, config in configs.items()
            if name not in self.schema and config.role != "ignore"
        }


def resolve(
    loaded: LoadedPipeline,
    spans: Sequence[str],
    files: Callable[[str], Sequence[InputFile]],
    *,
    schema_text: str | None = None,
) -> Columns:
    """Returns the columns of a pipeline, by its schema file or inferred from the window's files.

    Args:
        spans: the window's spans; without a schema file, the types are inferred from their files.
        files: returns the files of a span.
        schema_text: the text of a schema, which replaces the schema file.

    Raises:
        ConfigError: the pipeline names a column that does not exist, or gives one a role that it cannot have.
    """
    pipeline = loaded.pipeline
    configs, notes = pipeline.column_configs(), list[Note]()
    path = loaded.schema_file
    if schema_text is None and path.is_file():
        schema_text = path.read_text(encoding="utf-8")
    inferred, samples = schema_text is None, list[Sample]()
    if schema_text is not None:
        schema = from_text(schema_text, where=str(path))
        _check_words(loaded, schema)
    else:
        schema, notes, *samples = _infer_window(loaded, {span: files(span) for span in spans})
    schema, split_notes = _split_columns(loaded, schema, samples, files(spans[0]))
    needed = _needed(loaded)
    # a schema leaves out what is ignored, so that a name which is misspelled shows in the files alone
    named = None
    if inferred and FORMATS[pipeline.source.format].named:
        source = open_source(pipeline.source)
        named = {name for span in spans for name in source.names(files(span)[-1])}
    for name in [*configs, *sorted(needed)]:
        ignored = name in configs and configs[name].role == "ignore" and name not in needed
        ignored = ignored and (named is None or name in named)
        if name in schema or ignored:
            continue
        if name not in needed and pipeline.preprocess is not None:
            _check_derived(name, configs[name], where=str(loaded.file))
            continue
        split = pipeline.split
        setting = f": {split.setting_of(name)}" if name in split.columns() else ""
        raise ConfigError(
            f"there is no column {name!r} in the schema",
            where=f"{loaded.file}{setting}, against {path}",
            fix=f"{suggest(name, schema.names())} (delete the schema file to infer it anew)",
        )
    read = []
    for column in schema.columns:
        name, role = column.name, _role(column.name, loaded)
        if name in needed or (role != "ignore" and (name in configs or not pipeline.only_named)):
            read.append(apply_config(column, configs.get(name), role))
    _check(read, loaded, notes)
    stored = tuple(column.name for column in read if is_stored(column))
    columns = Columns(
        schema,
        tuple(read),
        stored,
        (*notes, *split_notes),
        inferred,
        hashed=without_label(schema.split, pipeline.label_columns()) if pipeline.split.by_row else (),
        by_place=schema.split_by_place and pipeline.split.by_row,
        completes=bool(split_notes) and not inferred,
    )
    check_chains(columns.read, columns.transforms(configs), where=str(loaded.file))
    return columns


def _split_columns(
    loaded: LoadedPipeline, schema: Schema, samples: Sequence[Sample], files: Sequence[InputFile]
) -> tuple[Schema, list[Note]]:
    """Returns the schema with the columns that decide a row's split if there is no key, added if missing, and notes.

    Args:
        samples: samples of the first span and of all spans; empty if the schema is frozen, in which case `files` are sampled.
    """
    pipeline = loaded.pipeline
    if not pipeline.split.by_row or schema.split:
        return schema, []
    prefix = samples[0] if samples else open_source(pipeline.source).sample(files, PREFIX_ROWS)
    columns, identifiers = row_columns(prefix, pipeline.label_columns(), samples[-1] if samples else None)
    notes = list[str]()
    if identifiers:
        notes.append(
            f"the split of a row does not depend on {some(identifiers, 5, repr)}, which "
            f"{agree(len(identifiers), 'identifies', 'identify')} single rows; "
            f"to split by {agree(len(identifiers), 'it', 'them')}, set split.key"
        )
    if not samples:
        notes.append(
            f"{loaded.schema_file} did not list the columns that decide a row's split, and now it does "
            f"({counted(len(columns), 'column')}): eval rows are drawn anew, once"
        )
    by_place = few_distinct(prefix, columns, pipeline.label_columns())
    if by_place:
        notes.append(
            "fewer than a tenth of the first rows are distinct, so equal rows need not stay together: the split of a row depends "
            "on its file and its number in it too"
        )
    completed = schema.model_copy(update={"split": columns, "split_by_place": by_place})
    return completed, [Note(text=text) for text in notes]


def unknown_columns(loaded: LoadedPipeline, schema: Schema, files: Sequence[InputFile]) -> list[str]:
    """Returns the last file's columns that the schema lacks, without ignored ones; empty if only named columns are read."""
    configs = loaded.pipeline.column_configs()
    if loaded.pipeline.only_named or not files:
        return []
    names = open_source(loaded.pipeline.source).names(files[-1])
    ignored = {name for name, config in configs.items() if config.role == "ignore"}
    return [name for name in names if name not in schema and name not in ignored]


def new_columns(loaded: LoadedPipeline, schema: Schema, spans: Mapping[str, Sequence[InputFile]]) -> list[Column]:
    """Returns the columns of the last span that the schema lacks, with inferred types. If the first span lacks a column, its
    `since` is set to the first span from which on all have it. Columns that cannot be stored are left out.

    Args:
        spans: {span: its files}, in order.
    """
    files = [*spans.values()][-1]
    names = unknown_columns(loaded, schema, files)
    if not names:
        return []
    prefix = open_source(loaded.pipeline.source).sample(files, PREFIX_ROWS)
    found = _infer(loaded, prefix, [name for name in prefix.table.column_names if name in names])[0].columns
    return _since(loaded, found, spans)


def _infer_window(
    loaded: LoadedPipeline, spans: Mapping[str, Sequence[InputFile]]
) -> tuple[Schema, list[Note], Sample, Sample]:
    """Returns the schema inferred from a window's files, notes, a sample of the first span and a sample of all spans. The schema
    has the columns that the first or the last span has."""
    source = loaded.pipeline.source
    first, whole = sample_spans(open_source(source), list(spans.values()), PREFIX_ROWS)
    schema, notes = _infer(loaded, whole)
    if len(spans) == 1 or not FORMATS[source.format].named:
        return schema, notes, first, whole
    columns = _since(loaded, schema.columns, spans)
    gone = {column.name for column in schema.columns} - {column.name for column in columns}
    notes += [Note(column=name, text="the last span lacks it", left_out=True) for name in sorted(gone)]
    return schema.model_copy(update={"columns": tuple(columns)}), notes, first, whole


def _since(loaded: LoadedPipeline, columns: Sequence[Column], spans: Mapping[str, Sequence[InputFile]]) -> list[Column]:
    """Returns the columns that the first or the last span has. If the first span lacks a column, `since` is set to the
    span from which on all spans have it."""
    source = open_source(loaded.pipeline.source)
    there = {span: {*source.names(of[-1])} for span, of in spans.items()}
    found = list[Column]()
    for column in columns:
        lacking = [span for span in there if column.name not in there[span]]
        in_order = [*there]
        if not lacking or lacking[0] != in_order[0]:
            found.append(column)
        elif lacking[-1] != in_order[-1]:
            found.append(column.model_copy(update={"since": in_order[in_order.index(lacking[-1]) + 1]}))
    return found


def _check_derived(name: str, config: ColumnConfig, *, where: str) -> None:
    """Raise ConfigError if a column that preprocess makes has a setting for columns of files, such as a role."""
    theirs = [key for key in config.model_fields_set if key not in ColumnTransform.model_fields]
    if theirs:
        raise ConfigError(
            f"columns.{name}.{theirs[0]} is for a column of the files, and they have no column {name!r}",
            where=where,
            fix="leave it out: of a column that preprocess gives, only its transform can be set",
        )


def _infer(loaded: LoadedPipeline, prefix: Sample, names: Sequence[str] | None = None) -> tuple[Schema, list[Note]]:
    """Returns the schema inferred from a sample, or from the columns `names` of it, and notes."""
    configs, split = loaded.pipeline.column_configs(), loaded.pipeline.split
    if loaded.pipeline.preprocess is not None:
        configs = {name: config for name, config in configs.items() if name in prefix.table.column_names}
    keys = frozenset(name for name, config in configs.items() if config.role in ("key", "group"))
    return infer(
        prefix if names is None else dataclasses.replace(prefix, table=prefix.table.select(names)),
        configs if names is None else {name: config for name, config in configs.items() if name in names},
        only=loaded.pipeline.only_named,
        needed=_needed(loaded) if names is None else frozenset(),
        where=str(loaded.file),
        typed=FORMATS[loaded.pipeline.source.format].typed,
        keys=keys.union(split.key),
    )


def _check_words(loaded: LoadedPipeline, schema: Schema) -> None:
    """Raise ConfigError if csv.null_values has a null word that no column of the schema has, or lacks one that all have."""
    of_columns = [set(column.null) for column in schema.columns if column.null is not None]
    options = loaded.pipeline.source.options
    if not isinstance(options, CsvConfig) or not of_columns:
        return
    words = set(options.null_values)
    if odd := sorted((words - set().union(*of_columns)) | (set.intersection(*of_columns) - words)):
        raise ConfigError(
            f"{some(odd, 5, repr)}: the columns of {loaded.schema_file} have other words for a missing value",
            where=f"{loaded.file}: source.csv.null_values",
            fix="delete the schema file to infer it anew, or change the tags headway.null= of its features",
        )


def _needed(loaded: LoadedPipeline) -> frozenset[str]:
    """Returns the names of the columns that are read whatever their role: for the label, filter, split, evaluation or gate."""
    pipeline = loaded.pipeline
    where = parse(pipeline.source.where).columns if pipeline.source.where else frozenset()
    return pipeline.label_columns() | where | pipeline.split.columns() | frozenset(pipeline.judged_columns)


def _role(name: str, loaded: LoadedPipeline) -> Role:
    pipeline = loaded.pipeline
    config = pipeline.column_configs().get(name)
    sliced = name in pipeline.judged_columns
    if config is not None and (config.role != "ignore" or not sliced):
        return config.role
    kept_out = pipeline.label_columns() | pipeline.split.columns()
    if sliced and (pipeline.only_named or config is not None or name in kept_out):
        return "passthrough"
    if name in pipeline.label_columns():
        return "ignore"
    if name in pipeline.split.columns():
        return "key"
    return "ignore" if pipeline.only_named else "feature"


def _check(read: Sequence[Column], loaded: LoadedPipeline, notes: Sequence[Note]) -> None:
    where, pipeline = f"{loaded.file}: columns", loaded.pipeline
    group = named_for(read, "group")
    if (ranking := pipeline.training.ranking) is not None:
        task = pipeline.task
        known = None if task == "auto" or ":" in task else task  # else the training checks it, once labels are counted
        ranking.check(known, group=group)
    if pipeline.evaluation.ndcg_at is not None and group is None:
        at = f"{loaded.file}: evaluation.ndcg_at"
        name = column_yaml("NAME", "group", auto=not pipeline.only_named)
        raise ConfigError("ndcg_at needs a column with role: group", where=at, fix=f"{name}, as a query's id")
    for column in read:
        if column.name in pipeline.judged_columns or column.role == "group":
            _check_judged(column, loaded)
    check_columns(read, where=where, notes=notes, only_named=pipeline.only_named)
    features = [column.name for column in read if column.is_feature]
    for name in pipeline.model.item if pipeline.preprocess is None else ():
        if name not in features:
            raise ConfigError(
                f"{name!r} is not a feature", where=f"{loaded.file}: model.item", fix=suggest(name, features)
            )


def _check_judged(column: Column, loaded: LoadedPipeline) -> None:
    """Raise ConfigError if a column cannot be stored beside the predictions."""
    evaluation, name = loaded.pipeline.evaluation, column.name
    judged = {
        "evaluation.item": (evaluation.item,),
        "evaluation.row_values": evaluation.row_values,
        "evaluation.slices": slice_columns(evaluation.slices),
        "gate.thresholds": loaded.pipeline.gate.columns,
    }
    where = f"{loaded.file}: " + next((key for key, names in judged.items() if name in names), "columns")
    if column.shape:
        raise ConfigError(f"column {name!r} holds several values per row", where=where)
    if name in OWN and name != LABEL:
        problem, fix = f"predictions have a column {name!r} of their own", "rename the column, by source.rename"
        raise ConfigError(problem, where=where, fix=fix)
    if not is_stored(column):
        fix = (
            f"leave it out there, or store it: {column_yaml(name, 'passthrough', auto=not loaded.pipeline.only_named)}"
        )
        raise ConfigError(f"column {name!r} has the role {column.role}, and is not stored", where=where, fix=fix)
