"""A table of few distinct rows is split by the places of its rows too: evenly, whoever reads it, and for ever."""

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from beam_jobs.ingest.request import NOTES
from beam_jobs.ingest.stage import ingest
from beam_jobs.leakage_check import prove
from beam_jobs.runners.config import RunnerConfig
from beam_jobs.splits_request import IngestedSpan, SplitsRequest
from headway.monitor import Monitor
from headway.schema.columns import Column
from headway.sources.config import SourceConfig
from headway.tabular.splits import SplitConfig, window_splits
from tests.beam_jobs.conftest import request_of, rows_of
from tests.small_ranges import small_ranges

ROWS = 4000
COLUMNS = tuple(
    Column(name=name, type="bytes" if name == "a" else "int64", nullable=True, encoding=encoding)
    for name, encoding in (("a", "dictionary"), ("b", "plain"), ("n", "plain"), ("y", "plain"))
)


@pytest.fixture
def table():
    """12 combinations of a and b, whose positives differ; n tells rows apart for the test, and is not hashed."""
    r = np.random.default_rng(0)
    kind = r.choice(12, ROWS, p=np.arange(1, 13) / 78)
    y = (r.random(ROWS) < np.linspace(0.02, 0.95, 12)[kind]).astype(np.int64)
    return pa.table({"a": np.array(["u", "v", "w"])[kind % 3], "b": kind // 3, "n": np.arange(ROWS), "y": y})


@pytest.fixture
def split_of(tmp_path):
    """split_of(tables, ...) -> {split: the numbers of its rows}, from files in a span."""

    def run(*tables, workers=1, format="csv", pieces=1 << 20, by_place=True, span="all", where=None):
        folder = tmp_path / f"raw{len([*tmp_path.iterdir()])}"
        (folder / span).mkdir(parents=True)
        for i, table in enumerate(tables):
            if format == "csv":
                pacsv.write_csv(table, folder / span / f"{i}.csv")
            else:
                pq.write_table(table, folder / span / f"{i}.parquet", row_group_size=500)
        config = SourceConfig(format=format, path=str(folder / "{span}" / f"*.{format}"), where=where)
        small_ranges(pieces, "csv", "parquet")
        hashed = {"hashed": COLUMNS[:2], "by_place": by_place}
        request = request_of(config, COLUMNS, ("a", "b", "n"), "y", SplitConfig(), span=span, **hashed)
        out = tmp_path / f"out{len([*tmp_path.iterdir()])}"
        out.mkdir()
        result = ingest(request, out, Monitor(), runner=RunnerConfig(workers=workers))
        run.proof = request, out
        return {name: np.sort([row["n"] for row in rows_of(out, result, name)]) for name in result["splits"]}

    return run


def test_labels_are_shared_out_evenly_where_a_hash_of_content_divides_twelve_combinations(table, split_of):
    y = table.column("y").to_numpy()
    by_content, by_place = (split_of(table, by_place=by_place) for by_place in (False, True))
    kinds = [
        table.select(["a", "b"]).take(rows["eval"]).group_by(["a", "b"]).aggregate([]).num_rows
        for rows in (by_content, by_place)
    ]
    assert kinds[0] < 6 and kinds[1] == 12
    rows = len(by_place["eval"])
    assert abs(rows - 0.2 * ROWS) < 4 * (0.16 * ROWS) ** 0.5
    error = (y.var() * (1 / rows + 1 / (ROWS - rows))) ** 0.5
    assert abs(y[by_place["eval"]].mean() - y[by_place["train"]].mean()) < 4 * error


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_row_s_split_depends_neither_on_workers_nor_on_where_ranges_are_cut(table, split_of, format):
    tables = table.slice(0, 1500), table.slice(1500)
    whole = split_of(*tables, format=format)
    for workers, pieces in ((4, 1 << 20), (1, 4096), (4, 1500)):
        other = split_of(*tables, format=format, workers=workers, pieces=pieces)
        assert all((other[name] == rows).all() for name, rows in whole.items())


def test_a_row_keeps_its_split_when_rows_come_behind_it_or_are_filtered(table, split_of):
    whole = split_of(table)["eval"]
    assert (split_of(table.slice(0, 3000))["eval"] == whole[whole < 3000]).all()
    assert (split_of(table, where="n >= 500")["eval"] == whole[whole >= 500]).all()
    other = split_of(table, span="2013-02")["eval"]
    assert (other == whole).all()  # its place is that within its own span
    shifted = split_of(table.slice(1))["eval"]
    assert len(np.intersect1d(shifted, whole)) < 0.4 * len(whole)  # rows before it went: they are drawn anew


def test_the_proof_says_what_was_done_and_reports_no_duplicate(table, split_of):
    split_of(table)
    request, out = split_of.proof
    spans = (IngestedSpan(request=request, notes=out / NOTES),)
    parts = {name: tuple(of) for name, of in window_splits(SplitConfig(), ["all"]).items() if of}
    result = prove(SplitsRequest(split=SplitConfig(), spans=spans, parts=parts), out, Monitor())
    assert result["anomalies"] == []
    [says] = result["says"]
    said = "rows are split by their places in their files too: equal rows are in several splits, which is not a leak"
    assert said in says
