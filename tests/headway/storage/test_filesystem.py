"""Folders that others change while they are read."""

import errno
import os
import shutil

import pytest

from headway.errors import DataError
from headway.storage.filesystem import below, entries, reading


def test_what_is_removed_while_a_folder_is_read_is_passed_over(tmp_path):
    for name in ("a/1", "a/2", "b/1", "c/d/1"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    found = []
    for path, about in entries(tmp_path):
        found.append((path.relative_to(tmp_path).as_posix(), about.st_size))
        if found[-1][0] == "a/1":
            (tmp_path / "a" / "2").unlink()
            shutil.rmtree(tmp_path / "b")
            shutil.rmtree(tmp_path / "c" / "d")
    assert [name for name, _ in found] == ["a", "b", "c", "a/1"]
    assert found[-1][1] == len("a/1")
    assert below(str(tmp_path)) == [str(tmp_path / "a" / "1")]
    assert list(entries(tmp_path / "none")) == []


def test_files_of_a_folder_that_cannot_be_listed_are_not_left_out_in_silence(tmp_path, monkeypatch):
    closed = tmp_path / "closed"
    closed.mkdir()
    (tmp_path / "a.csv").write_text("x\n1\n")
    listed = os.scandir

    def scandir(folder):
        if os.fspath(folder) == str(closed):  # root may list it
            raise PermissionError(errno.EACCES, "Permission denied", str(closed))
        return listed(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    said = r"closed: the folder cannot be listed: Permission denied\n  fix: let this user"
    with pytest.raises(DataError, match=said):
        below(str(tmp_path))
    assert [path.name for path, _ in entries(tmp_path)] == ["a.csv", "closed"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TimeoutError(), "TimeoutError"),
        (OSError("no answer\nof the bucket"), "no answer"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
    ],
)
def test_what_cannot_be_read_says_why_even_of_an_error_without_text(tmp_path, error, reason):
    with (
        pytest.raises(DataError, match=rf"a\.csv: cannot be read: {reason}\n  fix: check the file"),
        reading(str(tmp_path / "a.csv")),
    ):
        raise error
