"""A run's report as one HTML file, which loads nothing from elsewhere.

html = page(Material(store, record))
place = write(store, record)               # <store>/runs/<run>.html, whole or not at all
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.records import RunRecord
from flows.tell.ending import ending_of
from flows.tell.html import document
from flows.tell.material import Material
from flows.tell.rendering.parts import Part
from flows.tell.sections.curves import training
from flows.tell.sections.origin import again, origin
from flows.tell.sections.scores import evaluation
from flows.tell.sections.stage_times import what_ran
from flows.tell.sections.window.window_data import data
from headway.messages import counted, duration, when, window_text
from headway.sources.discovery.spans import ONE_SPAN
from headway.storage.atomic_io import replace_text
from headway.storage.store import Store


def path_of(store: Store, run: str) -> Path:
    """The report of a run in the store, beside the run's record."""
    return store.runs_folder / f"{run}.html"


def place_of(store: Store, path: Path) -> str:
    """A page of the store for a person: a path, or a bucket's URL."""
    return f"{store.name}/{path.relative_to(store.root).as_posix()}"


def on_this_disk(store: Store, path: Path) -> Path:
    """Where a page of the store can be opened: its own file, or a copy of one in a bucket, as it is there now.

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
        Its place, as `place_of` says.
    """
    path = path_of(store, record.run)
    store.replace(path, page(Material(store, record, files)))
    return place_of(store, path)


def page(material: Material) -> str:
    """The report of a run, without secrets."""
    record, ending = material.record, ending_of(material.record)
    parts = [
        evaluation(material),
        data(material),
        training(material),
        what_ran(record),
        origin(material),
        again(material),
    ]
    if record.notes:
        parts.append(Part("Notes", points=[str(note) for note in record.notes]))
    about = f"run {record.run}"
    return document(
        title=f"{record.pipeline}: {ending.label}, {about}",
        pipeline=record.pipeline,
        about=about,
        ending=ending,
        parts=[part for part in parts if part is not None],
        facts=_facts(material),
    )


def _facts(material: Material) -> list[tuple[str, str]]:
    """The figures below the verdict."""
    record = material.record
    spans = list(record.spans or material.ingested())
    facts = [(f"{split} rows", f"{count:,}") for split, count in material.statistics.rows.items()]
    if spans and spans != [ONE_SPAN]:
        facts.append((counted(len(spans), "span"), window_text(spans)))
    return [*facts, ("took", duration(record.seconds)), ("began", f"{when(record.started)} UTC")]
