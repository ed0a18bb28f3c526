"""Tables that a pipeline is drafted for."""

import csv

import pytest

from headway.first_pipeline.draft import draft_of, read_source
from headway.first_pipeline.found_files import found_source
from headway.first_pipeline.label_choice import label_of


def draft_from(data, label="y"):
    """The draft for files that are there."""
    source, look = read_source(found_source(str(data)))
    return draft_of(source, look, label_of(label, look.names))


@pytest.fixture
def drafted(tmp_path):
    """Writes columns as CSV and drafts a pipeline."""

    def draft(columns, label="y", delimiter=",", name="table.csv"):
        with (tmp_path / name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter=delimiter)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
        return draft_from(tmp_path / name, label)

    return draft
