"""Spans, files and windows; what a source's config refuses."""

from pathlib import Path

import google_crc32c
import pytest

from headway.config import load
from headway.errors import ConfigError, DataError
from headway.sources.config import FORMATS, SourceConfig, by_ending
from headway.sources.spans import files, open_source, spans


@pytest.fixture
def tree(tmp_path):
    for name in ("2013-01.csv", "2013-02.csv", "day=a/x.csv", "day=b/x.csv", "day=b/sub/y.csv", "other.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"a\n{name}\n")
    return tmp_path


def source(place, **more):
    return load(SourceConfig, {"format": "csv", "path": str(place), **more}, where="pipeline.yaml: source")


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("{span}.csv", ["2013-01", "2013-02"]),
        ("2013-{span}.csv", ["01", "02"]),
        ("day={span}", ["a", "b"]),
        ("day={span}/*.csv", ["a", "b"]),
        ("day={span}/x.csv", ["a", "b"]),
        ("*/{span}.csv", ["x"]),
        ("20[01]3-{span}.csv", ["01", "02"]),
        ("20[!9]?-{span}.csv", ["01", "02"]),
        ("2013-01.csv", ["all"]),
        ("2013-*.csv", ["all"]),
    ],
)
def test_spans_are_what_the_paths_say(tree, path, names):
    assert spans(source(tree / path)) == names


@pytest.mark.parametrize(
    ("path", "columns"),
    [
        (".", [("01", "x y"), ("02", None)]),
        ("*/*/*.csv", [("01", "x y"), ("02", None)]),
        ("test={span}", [(None, "x y"), (None, None)]),
        ("test=*/b=x%20y", [("01", None)]),
    ],
)
@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_folders_that_name_a_column_are_columns(tmp_path, path, columns, format):
    for folder in ("test=01/b=x%20y", "test=02/b=__HIVE_DEFAULT_PARTITION__"):
        place = tmp_path / folder / f"p.{format}"
        place.parent.mkdir(parents=True)
        place.write_text("a\n1\n2\n" if format == "csv" else '{"a": 1}\n{"a": 2}\n')
    config = source(tmp_path / path.replace("csv", format), format=format)
    rows = []
    for span in spans(config):
        found = files(config, span)
        opened = open_source(config)
        names = opened.names(found[0])
        assert opened.sample(found, 10).table.column_names == names
        for piece in opened.ranges(found):
            for chunk in opened.read(piece, names[::-1], {}):
                assert chunk.batch.schema.names == names[::-1]
                rows += chunk.batch.to_pylist()
            (alone,) = opened.read(piece, names[1:], {})
            assert alone.batch.num_rows == 2
    got = [tuple(None if row.get(n) is None else row[n].decode() for n in ("test", "b")) for row in rows]
    assert got == [each for each in columns for _ in range(2)]


def test_a_folder_without_a_date_is_of_no_span_and_is_not_passed_over(tmp_path):
    for day in ("2013-01-05", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / f"day={day}").mkdir()
        (tmp_path / f"day={day}" / "p.csv").write_text("a\n1\n")
    with pytest.raises(ConfigError, match="its rows have no date"):
        spans(source(tmp_path / "day={year}-{month}-{day}"))


def test_a_spans_files_are_sorted_and_known_by_their_bytes(tree):
    found = files(source(tree / "day={span}"), "b")
    assert [Path(file.path).relative_to(tree).as_posix() for file in found] == ["day=b/sub/y.csv", "day=b/x.csv"]
    data = (tree / "day=b/x.csv").read_bytes()
    assert (found[1].bytes, found[1].crc32c) == (len(data), f"{google_crc32c.value(data):08x}")
    (tree / "day=b/x.csv").touch()
    assert files(source(tree / "day={span}"), "b") == found


def test_in_a_folder_only_data_files_count(tree):
    for name in ("_SUCCESS", "._x.csv", ".hidden.csv", "_tmp/z.csv", "notes.txt", "y.parquet"):
        (tree / "day=a" / name).parent.mkdir(exist_ok=True)
        (tree / "day=a" / name).write_text("a\n1\n")
    assert [Path(file.path).name for file in files(source(tree / "day=a"), "all")] == ["x.csv"]


def test_span_names_are_not_taken_for_globs(tmp_path):
    for name in ("a[1].csv", "a1.csv"):
        (tmp_path / name).write_text("a\n1\n")
    config = source(tmp_path / "{span}.csv")
    assert spans(config) == ["a1", "a[1]"]
    assert [Path(file.path).name for file in files(config, "a1")] == ["a1.csv"]


@pytest.mark.parametrize("path", ["no/{span}.csv", "no.csv", "2014-*.csv", "empty"])
def test_a_path_without_files_says_which(tree, path):
    (tree / "empty").mkdir()
    with pytest.raises(ConfigError) as error:
        files(source(tree / path), spans(source(tree / path))[0])
    assert path.replace("{span}", "") in str(error.value).replace("{span}", "") and error.value.where == "source.path"


def test_an_empty_file_is_a_data_error_that_names_it(tmp_path):
    (tmp_path / "a.csv").touch()
    with pytest.raises(DataError, match=r"a\.csv: the file is empty"):
        files(source(tmp_path / "a.csv"), "all")


def test_quoted_newlines_are_noted_for_csv_alone(tmp_path):
    (tmp_path / "a.csv").write_text('a\n"x\ny"\n')
    assert files(source(tmp_path / "a.csv"), "all")[0].quoted_newlines
    assert not files(source(tmp_path / "a.csv", format="parquet"), "all")[0].quoted_newlines
    assert not files(source(tmp_path / "a.csv", csv={"quote": "'"}), "all")[0].quoted_newlines


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"format": "json"}, "'parquet', 'csv'"),
        ({"path": "{span}/{spam}.csv"}, "the placeholder {spam}, which is not known; did you mean '{span}'?"),
        ({"path": "{minute}.csv"}, "there is: {span}, {year}, {month}, {day}, {hour}"),
        ({"path": "{span}/{span}.csv"}, "{span} more than once"),
        ({"where": "a >"}, "not an expression"),
        ({"csv": {"delimter": ";"}}, "csv.delimter: unknown key; did you mean 'delimiter'"),
        ({"csv": {"delimiter": "é"}}, "one ASCII character"),
        ({"csv": {"delimiter": "\n"}}, "not a line end"),
        ({"csv": {"quote": "“"}}, "one ASCII character"),
        ({"csv": {"delimiter": '"'}}, "the same character"),
        ({"csv": {"header": False}}, "need csv.names"),
        ({"csv": {"header": False, "names": ["a", "a"]}}, "a name twice"),
        ({"csv": {"skip_lines": -1}}, "csv.skip_lines"),
        ({"glob": "x"}, "glob: unknown key; known keys: csv"),
    ],
)
def test_wrong_configs_are_refused(more, said):
    with pytest.raises(ConfigError) as error:
        source("x.csv", **more)
    assert said in str(error.value) and "pipeline.yaml" in str(error.value)


def test_ingest_is_named_after_the_format_and_not_after_the_place():
    assert source("a.csv").at_ingest() == source("b.csv").at_ingest()
    others = [source("a.csv"), source("a.csv", where="x > 1"), source("a.csv", csv={"skip_lines": 1})]
    assert len({repr(config.at_ingest()) for config in others}) == 3


@pytest.mark.parametrize("kind", FORMATS)
def test_the_docs_name_every_ending_that_is_taken(kind):
    text = (Path(__file__).parents[3] / "docs" / "sources.md").read_text(encoding="utf-8")
    [row] = [line for line in text.splitlines() if line.startswith(f"| `{kind}` |")]
    named = row.split("|")[2].replace("GZIP", ".gz").replace(",", " ").split()
    assert {*FORMATS[kind].endings.replace(",", " ").split()} <= {*named, "also"}


@pytest.mark.parametrize("packed", ["", ".gz", ".bz2", ".zst", ".zip", ".ZIP"])
def test_a_folder_s_text_files_are_known_by_their_endings_however_they_are_compressed(packed):
    names = ("a.csv", "a.CSV", "a.jsonl", "a.ndjson", "a.json", "a.csvx", "a.jsonl.old")
    assert [by_ending(name + packed) for name in names] == ["csv"] * 2 + ["jsonl"] * 3 + [None] * 2
