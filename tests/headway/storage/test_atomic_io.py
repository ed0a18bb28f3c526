"""Disks that fail, and writing that leaves no halves."""

import errno
import os
from pathlib import Path

import pytest

from headway.errors import StoreError
from headway.storage.atomic_io import copy_tree, remove, replace_text, storage_error, writing


@pytest.mark.parametrize(
    "number, fix",
    [
        (errno.ENOSPC, "make room"),
        (errno.EDQUOT, "make room"),
        (errno.EROFS, "can be written"),
        (errno.EACCES, "right"),
        (errno.EIO, "disk"),
        (errno.ENOTDIR, "is a file"),
        (errno.EFBIG, "ulimit -f"),
    ],
)
def test_a_failing_disk_is_a_store_error_with_path_and_fix(tmp_path, number, fix):
    with pytest.raises(StoreError) as error, writing(tmp_path):
        raise OSError(number, os.strerror(number), str(tmp_path / "x"))
    assert error.value.where == str(tmp_path / "x") and fix in error.value.fix
    with pytest.raises(StoreError) as error, writing(tmp_path):
        raise OSError(number, os.strerror(number))  # as a failed write: without a name
    assert error.value.where == str(tmp_path)


def test_a_full_disk_elsewhere_is_named_too(tmp_path):
    with pytest.raises(StoreError) as error, writing(tmp_path / "store"):
        raise OSError(errno.ENOSPC, "no", "/elsewhere/x")
    assert error.value.where == "/elsewhere/x"


def test_of_a_copy_that_a_full_disk_ends_the_new_file_is_named(tmp_path):
    with pytest.raises(StoreError) as error, writing(tmp_path / "backup"):
        raise OSError(errno.ENOSPC, "no", "/store/x", None, str(tmp_path / "backup" / "x"))  # as shutil.copyfile does
    assert error.value.where == str(tmp_path / "backup" / "x")


@pytest.mark.parametrize(
    "other",
    [PermissionError(errno.EACCES, "no", "/somebody/elses/source.csv"), FileNotFoundError(2, "no"), ValueError()],
)
def test_other_errors_pass_unchanged(tmp_path, other):
    with pytest.raises(type(other)) as error, writing(tmp_path):
        raise other
    assert error.value is other


class FromTensorFlow(Exception):
    """As tf.errors.ResourceExhaustedError says that a disk is full."""


FromTensorFlow.__module__ = "tensorflow.python.framework.errors_impl"


@pytest.mark.parametrize(
    ("error", "where"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/a/b"), "/a/b"),
        (OSError("[Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device"), "/store"),
        (FromTensorFlow("{{function_node x}} /a/b.index.tempstate1; No space left on device"), "/a/b.index.tempstate1"),
        (FromTensorFlow("/a/b; Read-only file system [Op:SaveV2]"), "/a/b"),
        (PermissionError(errno.EACCES, "Permission denied", b"/a/b"), "/a/b"),
    ],
)
def test_a_full_or_forbidden_disk_is_named_whoever_raises_the_error(error, where):
    told = storage_error(error, Path("/store"))
    assert told is not None and told.where == where and told.fix
    assert "cannot be written" in told.problem


@pytest.mark.parametrize("error", [FileNotFoundError(2, "no"), ValueError("No space left on device"), KeyError("x")])
def test_other_errors_are_not_reported_as_disk_errors(error):
    assert storage_error(error) is None


def test_text_is_replaced_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "x.json"
    replace_text(path, "old")

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="no space left"):
        replace_text(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["x.json"]


def test_remove_takes_files_folders_links_and_nothing(tmp_path):
    (tmp_path / "folder" / "in").mkdir(parents=True)
    (tmp_path / "kept").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    for name in ("folder", "file", "link", "none"):
        remove(tmp_path / name)
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]


def test_a_tree_is_copied(tmp_path):
    (tmp_path / "a" / "empty").mkdir(parents=True)
    (tmp_path / "a" / "x").write_text("x")
    copy_tree(tmp_path / "a", tmp_path / "copied")
    copy_tree(tmp_path / "a", tmp_path / "linked", link=True)
    for name, links in (("copied", 1), ("linked", 2)):
        assert (tmp_path / name / "empty").is_dir() and (tmp_path / name / "x").read_text() == "x"
        assert (tmp_path / name / "x").stat().st_nlink == links
