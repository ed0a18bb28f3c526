"""Folders of images: every file is decoded once, labels come from folders or a table, broken ones go alone."""

import io

import pytest
from PIL import Image

from headway.errors import ConfigError, DataError
from headway.schema_inference.column_types import infer
from headway.sources.config import ImagesConfig, SourceConfig
from headway.sources.spans import files, open_source, spans
from tests.small_ranges import small_ranges


def image(shade, kind="JPEG"):
    out = io.BytesIO()
    Image.new("RGB", (16, 16), (shade, 0, 255 - shade)).save(out, kind)
    return out.getvalue()


@pytest.fixture
def folder(tmp_path):
    for name, data in {
        "cat/0.jpg": image(0),
        "cat/1.PNG": image(1, "PNG"),
        "dog/2.jpeg": image(2),
        "dog/cut.jpg": image(3)[:-150],
        "dog/empty.png": b"",
        "dog/page.jpg": b"<html>",
        "dog/notes.txt": b"x",
    }.items():
        path = tmp_path / "2013-01" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path


def opened(folder, span="2013-01", max_cell_bytes=1 << 20, path="{span}", range_size=1 << 26, **images):
    small_ranges(range_size, "images")
    config = SourceConfig(
        format="images", path=f"{folder}/{path}", max_cell_bytes=max_cell_bytes, images=ImagesConfig(**images)
    )
    assert spans(config) == [span]
    return open_source(config), files(config, span)


def everything(source, found, columns=("path", "label", "image")):
    rows, malformed = [], []
    for piece in source.ranges(found):
        for chunk in source.read(piece, list(columns), {}):
            rows += chunk.batch.to_pylist()
            malformed += [(bad.text, bad.reason) for bad in chunk.malformed]
            assert all(
                found[piece.file + int(i)].path.endswith(row["path"])
                for i, row in zip(chunk.positions(), chunk.batch.to_pylist(), strict=True)
            )
    return rows, malformed


@pytest.mark.parametrize("range_size", [1, 1000, 1 << 20])
@pytest.mark.parametrize("path", ["{span}", "{year}-{month}", "{span}/"])
def test_images_come_with_their_folders_name(folder, range_size, path):
    source, found = opened(folder, range_size=range_size, path=path)
    rows, malformed = everything(source, found)
    assert [(row["path"], row["label"]) for row in rows] == [
        ("cat/0.jpg", "cat"), ("cat/1.PNG", "cat"), ("dog/2.jpeg", "dog"),
    ]  # fmt: skip
    assert rows[0]["image"] == image(0)
    assert [path for path, _ in malformed] == ["dog/cut.jpg", "dog/empty.png", "dog/page.jpg"]
    assert all(reason for _, reason in malformed)
    assert (len(source.ranges(found)) == 1) == (range_size == 1 << 20)


def test_labels_come_from_a_table(folder):
    (folder / "2013-01/labels.csv").write_text("name,grade\n0.jpg,7\ndog/2.jpeg,8\n")
    source, found = opened(folder, table="labels.csv", file_column="name", label_column="grade")
    assert found[-1].path.endswith("labels.csv")  # it is part of what the span says
    rows, _ = everything(source, found, ("path", "label"))
    assert [row["label"] for row in rows] == [7, None, 8, None, None, None]
    assert [str(kind) for kind in source.sample(found, 9).table.schema.types] == ["binary", "string", "int64"]


@pytest.mark.parametrize(
    ("table", "error", "said"),
    [
        (
            "file,label\n" + "".join(f"{n}.jpg,{n}\n" for n in (5, 0, 1, 0, 2, 3, 3, 2, 1, 2)),
            DataError,
            r"4 file names stand in it more than once: '0.jpg', '1.jpg', '2.jpg' and 1 more",
        ),
        ("file,label\n0.jpg,1\n0.jpg,1\n", DataError, r"1 file name stands .*: '0.jpg'.*fix: write one row per file"),
        (
            "file,label\nimages/0.jpg,1\n0,2\ncat/0.jpeg,3\n4,4\n",
            DataError,
            r"none of its 4 file names is an image's: it has 'images/0.jpg', '0', 'cat/0.jpeg' and 1 more, "
            r"and the images are 'cat/0.jpg', 'cat/1.PNG', 'dog/2.jpeg' and 3 more.*fix: write names with their endings",
        ),
        ("name,label\n0.jpg,1\n", ConfigError, "no column 'file'"),
        ("\0\xff", (DataError, ConfigError), "table of labels"),
    ],
)
def test_a_table_that_cannot_be_used_says_why(folder, table, error, said):
    (folder / "2013-01/labels.csv").write_text(table)
    source, found = opened(folder, table="labels.csv")
    with pytest.raises(error, match=f"(?s){said}"):
        source.ranges(found)


def test_names_that_miss_and_images_without_a_label_are_noted(folder):
    names = ["0.jpg", "dog/2.jpeg", *(f"gone{n}.jpg" for n in range(4))]
    (folder / "2013-01/labels.csv").write_text("file,label\n" + "".join(f"{name},a\n" for name in names))
    source, found = opened(folder, table="labels.csv")
    _, (missed, bare) = infer(source.sample(found, 9), {}, only=False, needed=frozenset(), where="")
    said = "4 of 6 names match no image of the first span, e.g. 'gone0.jpg', 'gone1.jpg', 'gone2.jpg' and 1 more"
    assert missed.text.endswith(said)
    assert missed.text.startswith(found[-1].path)
    said = "4 of 6 images have no label, e.g. 'cat/1.PNG', 'dog/cut.jpg', 'dog/empty.png' and 1 more"
    assert bare.text.endswith(said)
    names = [file.path.removeprefix(f"{folder}/2013-01/") for file in found[:-1]]
    (folder / "2013-01/labels.csv").write_text("file,label\n" + "".join(f"{name},a\n" for name in names))
    source, found = opened(folder, table="labels.csv")
    assert infer(source.sample(found, 9), {}, only=False, needed=frozenset(), where="")[1] == []


def test_a_table_without_a_row_labels_nothing(folder):
    (folder / "2013-01/labels.csv").write_text("file,label\n")
    source, found = opened(folder, table="labels.csv")
    rows, _ = everything(source, found, ("path", "label"))
    assert len(rows) == 6 and not any(row["label"] for row in rows)


def test_a_table_that_is_not_there_is_an_error_that_names_it(folder):
    with pytest.raises((ConfigError, DataError), match=r"2013-01/labels\.csv"):
        opened(folder, table="labels.csv")


def test_an_image_beyond_the_bound_is_not_even_read(folder):
    source, found = opened(folder, max_cell_bytes=10)
    rows, malformed = everything(source, found)
    assert not rows and "max_cell_bytes: 10" in malformed[0][1]


def test_a_file_that_changed_since_it_was_listed_is_an_error(folder):
    source, found = opened(folder)
    pieces = source.ranges(found)
    (folder / "2013-01/cat/0.jpg").write_bytes(image(9) + b"more")
    with pytest.raises(DataError, match=r"0\.jpg"):
        list(source.read(pieces[0], ["image"], {}))


@pytest.mark.parametrize("kind", ["BMP", "GIF", "WEBP", "TIFF"])
def test_images_of_other_formats_are_named_and_counted(folder, kind):
    (folder / "2013-01" / "cat" / f"9.{kind.lower()}").write_bytes(image(9, kind))
    (folder / "2013-01" / "dog" / f"9.{kind.lower()}").write_bytes(image(9, kind))
    (folder / "2013-01" / "dog" / "8.jpg").write_bytes(image(9, kind))
    source, found = opened(folder)
    (note,) = source.sample(found, 100).notes
    assert f"2 images of other formats passed over: 2 .{kind.lower()}; convert them" in note
    _, malformed = everything(source, found)
    assert ("dog/8.jpg", f"is {kind}, neither a JPEG nor a PNG") in [(name[-9:], why) for name, why in malformed]
    for path in (folder / "2013-01").rglob("*.[jJpP]*"):
        path.unlink()
    (folder / "2013-01" / "dog" / "8.jpg").write_bytes(image(9, kind))
    source, found = opened(folder)
    with pytest.raises(DataError, match=f"is {kind}, neither"):
        source.sample(found, 100)
