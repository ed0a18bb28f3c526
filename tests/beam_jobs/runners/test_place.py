"""Places, on a disk and in a bucket: a range is there whole or not at all, and its files get their names."""

import pytest

from beam_jobs.runners.place import FACTS, RANGES, as_store_errors, open_place, range_name
from headway.errors import StoreError
from headway.storage.manifest import checksum, entries

KEY = "0123456789abcdef"


@pytest.fixture(params=["folder", "s3", "gs"])
def place(request, tmp_path, new_gs_bucket):
    if request.param == "folder":
        made = open_place(tmp_path / "out")
    elif request.param == "s3":
        made = open_place(f"s3://{request.getfixturevalue('bucket_name')}/out")
    else:
        made = open_place(f"gs://{new_gs_bucket(request.getfixturevalue('gs'))}/out")
    made.prepare("mine")
    return made


def _write(place, index, text, facts=b"{}", names=None):
    with place.attempt() as folder:
        (folder / "train").mkdir()
        (folder / "train" / "shard").write_text(text)
        (folder / "note").write_text("n")
        files = {entry.path: (entry.bytes, entry.crc32c) for entry in entries(folder)}
        place.deliver(folder, range_name(index, KEY), facts, files, names or {})
    assert not folder.exists()


def test_a_range_is_there_when_its_facts_are(place):
    name, before = range_name(3, KEY), place.objects.listing()
    assert place.facts(name) is None
    with pytest.raises(ValueError, match="half"), place.attempt() as folder:
        (folder / "note").write_text("half")
        raise ValueError("half")
    assert place.facts(name) is None and place.objects.listing() == before
    _write(place, 3, "rows", b'{"rows": 7}')
    assert place.facts(name) == b'{"rows": 7}'
    with place.attempt() as folder:
        here = place.fetch(name, ["train/shard", "note"], folder)
        assert (here / "train" / "shard").read_text() == "rows" and (here / "note").read_text() == "n"
        place.copy_to_output(name, "train/shard", "part-3")
        (folder / "out" / "merged").mkdir(parents=True)
        (folder / "out" / "merged" / "a").write_text("m")
        place.move_to_output(folder / "out", entries(folder / "out"))
        assert not entries(folder / "out")
    place.clear_ranges()
    assert set(place.objects.listing()) == {"part-3", "merged/a"}
    assert place.objects.read("part-3") == b"rows"


def test_an_attempt_too_many_changes_nothing_and_other_facts_replace(place, tmp_path):
    name = range_name(0, KEY)
    for facts, text in ((b"{}", "one"), (b"{}", "one"), (b'{"other": 1}', "two")):
        _write(place, 0, text, facts)
    with place.attempt() as folder:
        shard = place.fetch(name, ["train/shard"], folder) / "train" / "shard"
        assert shard.read_text() == "two"
        entry = checksum(shard)
    assert place.whole(name, {"train/shard": entry})
    assert not place.whole(name, {"train/shard": (entry[0] + 1, entry[1])})
    assert not place.whole(name, {"gone": entry}) and not place.whole(range_name(1, KEY), {"train/shard": entry})


def test_files_of_a_new_output_go_under_their_names_in_a_bucket(bucket_url):
    place = open_place(f"{bucket_url}/out")
    _write(place, 1, "rows", names={"train/shard": "train-1"})
    wanted = {"train-1"} | {f"{RANGES}/00001-0123456789ab/{file}" for file in ("note", FACTS)}
    assert set(place.objects.listing()) == wanted
    assert place.objects.read("train-1") == b"rows"


def test_a_job_forgets_how_an_earlier_one_ended_and_keeps_its_ranges(place):
    _write(place, 2, "rows")
    place.mark_started()
    place.write_outcome("mine", b"{}")
    assert place.is_started() and place.belongs("mine") and place.read_outcome("mine") == b"{}"
    place.prepare("next")
    assert not place.is_started() and place.read_outcome("next") is None and place.facts(range_name(2, KEY)) == b"{}"
    assert place.belongs("next") and not place.belongs("mine")
    place.clear_ranges()
    assert not place.belongs("next") and not place.objects.listing()


def test_a_worker_that_goes_on_after_the_driver_left_writes_nothing(tmp_path):
    place = open_place(tmp_path / "out")
    place.prepare("mine")
    with pytest.raises(StoreError, match="cannot be written"), as_store_errors(place.url), place.attempt() as folder:
        place.clear_ranges()
        (folder / "note").write_text("late")
    for late in (place.mark_started, lambda: place.write_outcome("mine", b"{}")):
        with pytest.raises(FileNotFoundError):
            late()
    assert not [*(tmp_path / "out").iterdir()]


def test_a_place_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        open_place(tmp_path / "file" / "out").prepare("mine")


def test_an_error_without_text_says_its_kind(tmp_path):
    with pytest.raises(StoreError, match="cannot be written: TimeoutError\n  fix: "), as_store_errors(str(tmp_path)):
        raise TimeoutError
