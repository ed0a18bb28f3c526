"""A run's report as one HTML file, which loads nothing from elsewhere; and sections on single steps.

html = page(RunResults(store, record))
place = write(store, record)               # <store>/runs/<run>.html, whole or not at all
told = step_section(output)                # for statistics, validation and evaluation
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from flows.records import Code, RunRecord
from flows.report.data import column_rows, data, findings_of, splits_table
from flows.report.evaluation import evaluation, measured_section, metric_table
from flows.report.html import document
from flows.report.model import Row, Section, Table
from flows.report.results import RunResults
from flows.report.training import training
from flows.report.verdict import ending_of
from flows.report.versions import rows_of
from headway.evaluation.measured import Measured
from headway.messages import counted, duration, some, when, window_text
from headway.sources.spans import ONE_SPAN
from headway.stages.step import Output
from headway.statistics.summary import WindowStatistics
from headway.storage.atomic_io import replace_text
from headway.storage.store import Store
from headway.validation.anomaly import Validated
from tfcore.evaluation.request import Evaluated


def path_of(store: Store, run: str) -> Path:
    """Returns the path of a run's report in the store, beside the run's record."""
    return store.runs_folder / f"{run}.html"


def place_of(store: Store, path: Path) -> str:
    """Returns the address of a page of the store to show to a person: a path, or a bucket's URL."""
    return f"{store.name}/{path.relative_to(store.root).as_posix()}"


def on_this_disk(store: Store, path: Path) -> Path:
    """Returns the local file of a page of the store; a page in a bucket is copied to this machine first.

    Raises:
        FileNotFoundError: there is no such page.
    """
    page = store.read(path)
    if not path.is_file() or path.read_bytes() != page:
        replace_text(path, page.decode("utf-8"))
    return path


def write(store: Store, record: RunRecord, files: Mapping[str, Any] | None = None) -> str:
    """Draw a run's report and put it beside the run's record.

    Args:
        files: {span: raw files}, where they are known.

    Returns:
        The report's address, as `place_of` returns it.
    """
    path = path_of(store, record.run)
    store.replace(path, page(RunResults(store, record, files)))
    return place_of(store, path)


def page(results: RunResults) -> str:
    """Returns the report of a run as HTML, without secrets."""
    record, ending = results.record, ending_of(results.record)
    parts = [
        evaluation(results),
        data(results),
        training(results),
        _origin(results),
    ]
    if record.notes:
        parts.append(Section("Notes", points=[str(note) for note in record.notes]))
    about = f"run {record.run}"
    return document(
        title=f"{record.pipeline}: {ending.label}, {about}",
        pipeline=record.pipeline,
        about=about,
        ending=ending,
        parts=[part for part in parts if part is not None],
        facts=_facts(results),
    )


def _facts(results: RunResults) -> list[tuple[str, str]]:
    """Returns the figures below the verdict, each as (name, value)."""
    record = results.record
    spans = list(record.spans or results.ingested())
    facts = [(f"{split} rows", f"{count:,}") for split, count in results.statistics.rows.items()]
    if spans and spans != [ONE_SPAN]:
        facts.append((counted(len(spans), "span"), window_text(spans)))
    return [*facts, ("took", duration(record.seconds)), ("began", f"{when(record.started)} UTC")]


# --- where a run comes from

_MOST_FILES = 400


def _origin(results: RunResults) -> Section:
    """Returns the section on the lineage: raw files, code, tools, the config."""
    record = results.record
    files = list(_files(results))
    sentences = list(_code(record.code))
    if record.version is not None:
        sentences.insert(0, f"Version {record.version} of {record.pipeline} was made by this run or is its champion.")
    tables = []
    if files:
        total = sum(file["bytes"] for file in files)
        sentences.append(f"{counted(len(files), 'raw file')}, {counted(total, 'byte')}, each with its checksum.")
        rest = len(files) - _MOST_FILES
        more = f"{counted(rest, 'further row')}: lineage.json of the version has all" if rest > 0 else ""
        tables.append(Table("Raw files", files[:_MOST_FILES], more, folded=True))
    tools = [{"tool": name, "version": version} for name, version in (record.code.tools if record.code else {}).items()]
    tables += [Table("Tools", tools, folded=True)] if tools else []
    config = json.loads(json.dumps(record.config))  # no tags of Python's, whatever a value's type
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=110)
    texts = [("The config of this run, with what --set changed", text)] if record.config else []
    return Section("Where it comes from", sentences, tables=tables, texts=texts)


def _files(results: RunResults) -> Iterator[Row]:
    """Yields a table row for each raw file, span by span. The path is empty if neither the caller nor the lineage of
    the run's version has it."""
    for span, output in results.ingested().items():
        for file in results.raw_files.get(span) or results.key(output.title).get("files") or []:
            yield {"span": span, "file": file.get("path", ""), "bytes": file["bytes"], "crc32c": file["crc32c"]}


def _code(code: Code | None) -> Iterator[str]:
    if code is None:
        return
    if git := code.git:
        changed = f"changes in {some(git.changed, 5)} that are not committed" if git.changed else "nothing changed"
        yield f"Code: commit {git.commit[:12]} on {git.branch}, with {changed}."
    for file, digest in code.modules.items():
        yield f"Your module {file}: sha256 {digest[:16]}…"


# --- a single step


def step_section(output: Output) -> Section | None:
    """Returns a section on the result of a finished step; None for a stage that has none."""
    match output.stage:
        case "statistics":
            return _statistics(output.read(WindowStatistics))
        case "validate":
            return _validation(output.read(Validated))
        case "evaluate":
            return _evaluation(output.title, output.read(Evaluated))
        case "measure":
            return measured_section(output.read(Measured), split="test" if output.title == "measure test" else "eval")
    return None


def artifact_key(output: Output) -> str:
    """Returns the key of a step's Prefect artifact, the same in every run: evaluation, evaluation-champion, ..."""
    words = [word for word in output.title.split() if not word.isdigit()]
    names = {"evaluate": "evaluation", "measure": "evaluation", "validate": "validation"}
    return "-".join([names.get(output.stage, output.stage), *words[1:]])


def _statistics(found: WindowStatistics) -> Section:
    splits = [{"split": name, "rows": rows, "columns": len(found.of(name))} for name, rows in found.rows.items()]
    tables = [
        Table(f"columns of the {name} split, {counted(rows, 'row')}", column_rows(found.columns[name]))
        for name, rows in found.rows.items()
        if found.columns.get(name)
    ]
    return Section("Statistics", tables=[Table("splits", splits), *tables])


def _validation(found: Validated) -> Section | None:
    """Returns the section on what validation found, with the table of splits and what is proven of them; None without both."""
    if not found.anomalies and not found.splits:
        return None
    said = f"{counted(found.errors, 'error')}, {counted(found.warnings, 'warning')}"
    return Section("Validation", [said], tables=splits_table(found), findings=findings_of(found))


def _evaluation(title: str, found: Evaluated) -> Section | None:
    """Returns the section on the metrics of a model other than the candidate; None for the candidate."""
    if found.incompatible is not None:
        return Section(title, [f"It cannot score these rows: {found.incompatible}"])
    if title in ("evaluate", "evaluate test"):
        return None
    return Section(title, [f"On {rows_of(found.rows, ())}."], tables=[metric_table(found.values)])
