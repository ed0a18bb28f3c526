"""Manifests: what they say of an output, and which of them can be trusted."""

import json

import google_crc32c
import pytest

from headway.errors import DataError, StoreError
from headway.storage import manifest as manifests
from headway.storage.manifest import Counts, FileEntry, Manifest
from headway.storage.store import Store

FORMAT_1 = """{
 "format": 1, "stage": "ingest", "fingerprint": "00ff", "key": {"span": "2013-01"},
 "files": [{"path": "train-00000-of-00001.tfrecord", "bytes": 3, "crc32c": "364b3fb7"}],
 "created": "2026-01-01T00:00:00.000Z", "seconds": 1.5, "tools": {"python": "3.11.9"},
 "counts": {"read": 3, "written": 1, "quarantined": 1, "filtered": 1}, "result": {"rows": 1}
}"""
"""As the first release wrote it: this text never changes, and stays readable."""


def made(**changes) -> Manifest:
    return Manifest.model_validate(json.loads(FORMAT_1) | changes)


def test_a_manifest_of_format_1_stays_readable(tmp_path):
    (tmp_path / "manifest.json").write_text(FORMAT_1)
    found = manifests.read(tmp_path)
    assert found is not None and found.counts is not None
    assert found.files[0] == FileEntry(path="train-00000-of-00001.tfrecord", bytes=3, crc32c="364b3fb7")
    assert (found.key, found.result, found.counts.filtered) == ({"span": "2013-01"}, {"rows": 1}, 1)


def test_what_is_written_is_read_and_a_person_can_read_it(tmp_path):
    manifests.write(tmp_path, made())
    assert manifests.read(tmp_path) == made()
    assert '\n "stage": "ingest",\n' in (tmp_path / "manifest.json").read_text()


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        "[]",
        "null",
        "\xff",
        FORMAT_1[:200],
        FORMAT_1.replace('"stage"', '"stag"'),
        FORMAT_1.replace('"read": 3', '"read": 4'),
    ],
)
def test_what_is_no_whole_manifest_is_none(tmp_path, text):
    if text is not None:
        (tmp_path / "manifest.json").write_text(text, encoding="latin-1")
    assert manifests.read(tmp_path) is None


def test_a_folder_that_is_a_file_has_no_manifest(tmp_path):
    (tmp_path / "x").write_text("")
    assert manifests.read(tmp_path / "x") is None


def test_a_manifest_of_another_format_is_an_error_and_not_a_damage(tmp_path):
    """Else this Headway would move the output aside and replace it."""
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 2, "whatever": True}))
    with pytest.raises(StoreError, match=r"by another Headway in format 2, and this Headway .* reads format 1"):
        manifests.read(tmp_path)
    written = {"format": 2, "tools": {"headway": "9.1.0"}}
    (tmp_path / "manifest.json").write_text(json.dumps(written))
    with pytest.raises(StoreError, match=r"was written by Headway 9\.1\.0 in format 2") as error:
        manifests.read(tmp_path)
    assert "use a Headway that reads this format" in error.value.fix


def test_a_field_more_is_a_format_more():
    """A field that is not known is taken for damage; a format that is not known is left alone."""
    known = {1: ["counts", "created", "files", "fingerprint", "format", "key", "result", "seconds", "stage", "tools"]}
    assert sorted(manifests.Manifest.model_fields) == known[manifests.FORMAT]


def test_rows_must_add_up():
    Counts(read=10, written=7, quarantined=2, filtered=1)
    with pytest.raises(DataError, match="10 rows were read, but 7 written \\+ 2 quarantined \\+ 2 filtered make 11"):
        Counts(read=10, written=7, quarantined=2, filtered=2)


def test_entries_name_every_file_with_size_and_checksum(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "x").write_bytes(b"abc")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "a" / "manifest.json").write_bytes(b"of somebody else")
    (tmp_path / "manifest.json").write_bytes(b"its own")
    found = manifests.entries(tmp_path)
    assert [e.path for e in found] == ["a/b/x", "a/manifest.json", "empty"]
    assert found[0] == FileEntry(path="a/b/x", bytes=3, crc32c=f"{google_crc32c.value(b'abc'):08x}")
    assert found[2].crc32c == "00000000"


def test_a_checksum_of_many_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(manifests, "_BLOCK", 7)
    (tmp_path / "x").write_bytes(b"0123456789" * 10)
    assert manifests.checksum(tmp_path / "x") == (100, f"{google_crc32c.value(b'0123456789' * 10):08x}")


def test_problems_name_the_file(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode() * 10)
    manifest, store = made(files=[e.model_dump() for e in manifests.entries(tmp_path)]), Store(tmp_path)
    assert store.sizes_problem(tmp_path, manifest) is None and store.checksum_problems(tmp_path, manifest) == []
    (tmp_path / "b").unlink()
    (tmp_path / "b").mkdir()
    assert store.sizes_problem(tmp_path, manifest) == "b is not a file"
    (tmp_path / "a").unlink()
    assert store.checksum_problems(tmp_path, manifest) == [("a", "is gone"), ("b", "cannot be read: Is a directory")]
    assert store.sizes_problem(tmp_path / "gone" / "deeper", manifest) == "a is gone"


def test_tools_are_named():
    assert {"python", "numpy", "pyarrow"} <= manifests.tools().keys()
