"""Wherever figures of versions or runs stand, they are differences on the same rows, or levels that name the spans of their rows:
over every report and table of a store whose months differ in difficulty."""

import itertools
import json
import re
from html.parser import HTMLParser

import pytest

from flows.config.pipeline import read_pipeline
from flows.records import records
from flows.report.compare import compare, describe, page
from flows.report.markdown import markdown
from flows.report.results import RunResults
from flows.report.text import summary
from flows.report.verdict import ending_of, ending_section
from headway.messages import number
from headway.registry.registry import Registry
from tests.flows.report.months import EVALS, months

pytestmark = pytest.mark.slow  # whole runs are told
_NUMBER = re.compile(r"(?<![\d.+-])\d+\.\d+(?![\d.])")
_DIGITS = 5
"""A number of more characters is a level, and no other number by chance."""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("months")
    months(folder)
    return folder


@pytest.fixture(scope="module")
def registry(project):
    return Registry(read_pipeline(project).open_store(), "flights")


@pytest.fixture(scope="module")
def spans_of(registry):
    """The span of the rows of each value that a metric has anywhere in the store."""
    found = {}
    for record in records(registry.store):
        (span,) = record.verdict.spans
        checks = [(check.metric, value) for check in record.verdict.compared() for value in (check.value, check.before)]
        for metric, value in [*record.metrics.items(), *checks]:
            if metric in ("auc", "loss") and len(number(value)) > _DIGITS:
                found.setdefault(number(value), set()).add(span)
    assert {span for spans in found.values() for span in spans} == set(EVALS)
    assert all(len(spans) == 1 for spans in found.values())
    return found


class _Units(HTMLParser):
    """Texts of a page that are read at once (a row, a sentence, a figure) with what stands over them."""

    _ENDS = frozenset({"tr", "p", "li", "h1", "h3", "summary", "figcaption", "div"})

    def __init__(self, html):
        super().__init__()
        self.units, self._said, self._title, self._table, self._text = [], [], "", "", []
        self.feed(re.sub(r"<(style|script)\b.*?</\1>", "", html, flags=re.DOTALL))
        self._end()

    def handle_starttag(self, tag, attrs):
        named = dict(attrs).get("aria-label")
        if tag in ("section", "tr", "p", "li", "h1", "figure"):
            self._end()
        if tag == "section":
            self._said, self._table = [], ""
        elif tag == "div" and named:
            self._end()
            self._table = named
        elif tag == "svg" and named:
            self.units.append(("figure", named, [named]))
        elif tag == "figure":
            self._table = ""

    def handle_endtag(self, tag):
        if tag in self._ENDS:
            self._end("row" if tag == "tr" else "sentence")
        if tag == "table":
            self._table = ""

    def handle_data(self, data):
        self._text.append(data)

    def _end(self, kind="sentence"):
        text, self._text = " ".join(" ".join(self._text).split()), []
        if text:
            self.units.append((kind, text, [text, self._table, *self._said]))
            if kind == "sentence":
                self._said.append(text)


def units_of(text, form):
    """(text, what stands over it) of all that is read at once."""
    if form == "html":
        return [(said, over) for _, said, over in _Units(text).units]
    blocks = text.split("\n\n")
    return [(line, blocks[max(at - 1, 0) : at + 1]) for at, block in enumerate(blocks) for line in block.splitlines()]


def check(where, text, form, spans_of):
    """No two levels of different rows stand side by side, and each level names its span. Returns how many levels there are.

    Args:
        form: html, text, or part: a text that is about one run alone, and is read as a whole.
    """
    levels = 0
    about = text[: text.find("<section")] if form == "html" else text if form == "part" else ""
    for said, over in units_of(text, form):
        found = {level: next(iter(spans_of[level])) for level in _NUMBER.findall(said) if level in spans_of}
        levels += len(found)
        assert len(set(found.values())) < 2, f"{where}: levels of different rows side by side: {said!r} {found}"
        for level, span in found.items():
            assert any(re.search(rf"\b(on|of) {span}\b", each) for each in [*over, about]), (
                f"{where}: {level} does not name {span}: {said!r}"
            )
    return levels


def test_every_table_of_the_commands(project, registry, spans_of, typed, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    runs = [record.run for record in records(registry.store)]
    said = {"models": typed("models", project, check=0).stdout, "runs": typed("runs", project, check=0).stdout}
    for run in runs:
        said[f"show {run}"] = typed("show", project, run, check=0).stdout
    for pair in [*itertools.combinations("123", 2), (runs[0], runs[1])]:
        said[f"compare {pair}"] = typed("compare", *pair, project, check=0).stdout
    levels = {what: check(what, text, "text", spans_of) for what, text in said.items()}
    assert levels["models"] and levels["compare ('1', '2')"] and levels["compare ('1', '3')"]
    assert "auc +" in said["models"] and "against v1 on 2013-12" in said["models"]


def test_comparisons_summaries_and_artifacts(registry, spans_of):
    store = registry.store
    for pair in itertools.combinations("123", 2):
        found = compare(registry, *pair)
        check(f"page of {pair}", page(found), "html", spans_of)
        for complete in (False, True):
            check(f"text of {pair}", describe(found, complete=complete), "text", spans_of)
        assert json.dumps(found.value)
    for record in records(store):
        check(f"summary of {record.run}", summary(record), "part", spans_of)
        check(f"artifact of {record.run}", markdown(ending_section(ending_of(record))), "part", spans_of)
    assert RunResults(store, record).verdict.spans
