"""Files of each format in ingest: columns that come later, images and lines that cannot be read, splits of folders."""

import io
import json

import pytest
from PIL import Image

from beam_jobs.ingest.stage import ingest
from beam_jobs.runners.config import RunnerConfig
from headway.errors import DataError
from headway.monitor import Monitor
from headway.schema.columns import Column
from headway.sources.config import SourceConfig
from headway.tabular import quarantine
from headway.tabular.splits import SplitConfig
from tests.beam_jobs.conftest import request_of
from tests.test_nothings import ALL, FORMATS, NUMBER

COLUMNS = (
    Column(name="id", type="int64", nullable=False, role="key"),
    Column(name="x", type="float32", nullable=True),
    Column(name="s", type="bytes", nullable=True, encoding="dictionary"),
    Column(name="l", type="int64", nullable=True, shape=(None,)),
    Column(name="y", type="int64", nullable=True),
)


def run(source, columns, stored, out, label="y", span="all"):
    request = request_of(source, columns, stored, label, SplitConfig(key=stored[:1], eval=1e-9), rows_per_record=4)
    request = request.model_copy(update={"span": span})
    out.mkdir()
    return ingest(request, out, Monitor())


@pytest.mark.parametrize("name", FORMATS)
def test_a_column_that_came_with_a_later_span_is_missing_in_an_earlier_one_and_refused_in_a_later_one(
    tmp_path, rows_of, name
):
    write, ending = FORMATS[name]
    write(ALL[:5], tmp_path / f"raw.{ending}")
    kinds = {"n": "int64", "f": "float32", "t": "bytes", "v": "float32"}
    later = [
        Column(name=n, type=kind, nullable=True, since="b", shape=(None,) if n == "v" else ())
        for n, kind in kinds.items()
    ]
    source = SourceConfig(format=name, path=str(tmp_path / f"raw.{ending}"))
    columns, stored = (NUMBER, *COLUMNS[-1:], *later), ("number", *kinds)
    result = run(source, columns, stored, tmp_path / "out", span="a")
    found = rows_of(tmp_path / "out", result, "train")
    assert [row["label"] for row in found] == [0, 1, 0, 1, 0] and found[3]["number"] == 1.5
    assert all(row[kind] is None for row in found for kind in kinds)
    if name not in ("jsonl", "examples"):  # of which no row need name every column
        with pytest.raises(DataError, match="there is no column 'n'"):
            run(source, columns, stored, tmp_path / "late", span="b")


def test_images_that_cannot_be_decoded_stand_in_the_quarantine_by_their_own_names(tmp_path, rows_of):
    for name, broken in {"cat/a.png": False, "cat/b.png": True, "dog/c.png": False, "dog/d.png": True}.items():
        out = io.BytesIO()
        Image.new("RGB", (8, 8)).save(out, "PNG")
        path = tmp_path / "raw" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(out.getvalue()[:30] if broken else out.getvalue())
    columns = tuple(Column(name=name, type="bytes", nullable=True) for name in ("image", "path", "label"))
    source = SourceConfig(format="images", path=str(tmp_path / "raw"))
    result = run(source, columns, ("path", "image"), tmp_path / "out", label="label")
    rows = rows_of(tmp_path / "out", result, "train")
    assert [(row["path"], row["label"]) for row in rows] == [(b"cat/a.png", b"cat"), (b"dog/c.png", b"dog")]
    rejected = quarantine.read(tmp_path / "out").to_pylist()
    wanted = [("cat/b.png", 1, "image"), ("dog/d.png", 1, "image")]
    assert [(row["file"], row["row"], row["column"]) for row in rejected] == wanted


def test_a_bad_line_and_a_bad_cell_of_json_lines_stand_in_the_quarantine(tmp_path):
    good = "".join(json.dumps({"id": i, "x": None, "s": "a", "l": [i], "y": 1}) + "\n" for i in range(5))
    (tmp_path / "raw.jsonl").write_text(good + '{"id": 5, "l": 3}\n{"id": 6\n{"id": "x", "y": 1}\n')
    result = run(
        SourceConfig(format="jsonl", path=str(tmp_path / "raw.jsonl")), COLUMNS, ("id", "x", "s", "l"), tmp_path / "out"
    )
    assert result["counts"] == {"read": 8, "written": 5, "quarantined": 3, "filtered": 0}
    rejected = quarantine.read(tmp_path / "out").to_pylist()
    wanted = [(6, "l", "3"), (7, None, '{"id": 6'), (8, "id", "x")]
    assert [(row["row"], row["column"], row["value"]) for row in rejected] == wanted
    assert "at byte" in rejected[0]["reason"] and "at byte" in rejected[1]["reason"]


def test_images_keep_the_split_and_the_label_of_their_folders(tmp_path, rows_of):
    for split, kind, grey in (("train", "a", 1), ("train", "b", 2), ("test", "a", 3)):
        folder = tmp_path / "images" / split / kind
        folder.mkdir(parents=True)
        Image.new("L", (2, 2), grey).save(folder / f"{grey}.png")
    source = SourceConfig(format="images", path=str(tmp_path / "images" / "{split}"))
    columns = tuple(Column(name=name, type="bytes", nullable=True) for name in ("label", "path"))
    request = request_of(source, columns, ("path",), "label", SplitConfig(mode="path"))
    result = ingest(request, tmp_path / "out", Monitor(), runner=RunnerConfig(workers=1))
    for split, rows in (("train", [b"a/1.png", b"b/2.png"]), ("test", [b"a/3.png"])):
        found = rows_of(tmp_path / "out", result, split)
        assert [row["path"] for row in found] == rows and [row["label"] for row in found] == [p[:1] for p in rows]
