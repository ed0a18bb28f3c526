"""Ranges of small files: the sizes that `headway.sources.config.FORMATS` names are for files of gigabytes."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from headway.sources.config import FORMATS, Format


def small_ranges(size: int, *formats: Format) -> None:
    """Set the size of a range of these formats, until the test ends (`usual_ranges`)."""
    for name in formats or tuple(FORMATS):
        FORMATS[name] = replace(FORMATS[name], range_size=size)


@pytest.fixture(autouse=True)
def usual_ranges() -> Iterator[None]:
    """The sizes as they were, after each test."""
    before = dict(FORMATS)
    yield
    FORMATS.update(before)
