"""What an ingest request refuses, and what its fingerprint rests on."""

import shutil

import pytest

from headway.errors import ConfigError, DataError
from headway.schema.columns import Column
from headway.tabular.splits import SplitConfig


def test_the_label_is_the_last_stored_column(request_for, write_csv):
    request = request_for(write_csv(3))
    assert [(column.name, column.type, column.role) for column in request.columns()] == [
        ("id", "int64", "key"),
        ("x", "float32", "feature"),
        ("s", "bytes", "feature"),
        ("label", "int64", "label"),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"where": "z > 1"}, "source.where: there is no column 'z'"),
        ({"label": "ys > 1"}, "label: there is no column 'ys'\n  fix: did you mean 'y'"),
        ({"split": SplitConfig(key=("idd",))}, "split.key: there is no column 'idd'\n  fix: did you mean 'id'"),
        ({"stored": ("id", "q")}, "columns: there is no column 'q'"),
    ],
)
def test_columns_that_are_not_read_are_named(request_for, write_csv, changes, message):
    with pytest.raises(ConfigError) as caught:
        request_for(write_csv(3), **changes).check()
    assert message in str(caught.value)


def test_a_feature_cannot_have_the_labels_name(request_for, write_csv):
    columns = (Column(name="label", type="int64", nullable=True), Column(name="id", type="int64", nullable=True))
    request = request_for(write_csv(3), columns=columns, stored=("label", "id"), label="label")
    with pytest.raises(ConfigError, match="the name that the label is stored under"):
        request.check()
    request_for(write_csv(3), columns=columns, stored=("id",), label="label").check()


def test_the_key_rests_on_content_not_on_places(request_for, write_csv, tmp_path):
    path = write_csv(5)
    moved = tmp_path / "elsewhere.csv"
    shutil.copy(path, moved)
    assert request_for(path).key() == request_for(moved).key()
    assert request_for(path).key() != request_for(write_csv(6)).key()
    assert request_for(path).key() != request_for(path, where="x > 1").key()


def test_the_path_of_a_file_says_its_split(request_for, write_csv):
    write_csv(3, "2013/train/a.csv")
    root = write_csv(2, "2013/valid/b.csv").parents[2]
    split = SplitConfig(mode="path", values={"train": "train", "valid": "eval"})
    request = request_for(root / "{span}" / "{split}" / "*.csv", split=split)
    assert request.span == "2013" and request.file_splits(request.files) == [0, 1]
    swapped = SplitConfig(mode="path", values={"train": "eval", "valid": "train"})
    assert request.key() != request_for(root / "{span}" / "{split}" / "*.csv", split=swapped).key()
    with pytest.raises(DataError, match=r"b\.csv: 'valid' is not train, eval or test"):
        request_for(root / "{span}" / "{split}" / "*.csv", split=SplitConfig(mode="path")).key()
