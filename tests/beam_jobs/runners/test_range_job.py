"""What a range and the driver tell each other through the work folder, the same on every runner."""

import errno

import pytest

from beam_jobs.runners import range_job
from beam_jobs.runners.range_job import RangeJob
from beam_jobs.runners.work_dir import WorkDir
from headway.errors import ConfigError
from headway.sources.base import Range

PIECE = Range(3, "a.csv", 0, 0, 1)


def reading(request, piece, folder, tick):
    """Reads 9 rows in batches of 3, and asks `request` in between."""
    for rows in (3, 6, 9):
        tick(rows)
        request(rows)
    return {"rows": 9}


@pytest.fixture
def work_dir(tmp_path):
    made = WorkDir.of(tmp_path / "out")
    made.begin()
    return made


def test_rows_are_reported_batch_by_batch(work_dir, monkeypatch):
    monkeypatch.setattr(range_job, "_REPORT_SECONDS", -1.0)
    seen = []
    assert RangeJob(lambda rows: seen.append(work_dir.rows({})), work_dir, f"{__name__}:reading").run(PIECE)
    assert seen == [3, 6, 9]
    assert work_dir.rows({}) == 9 and work_dir.finished() == {3}


def test_a_stop_ends_a_range_after_its_batch_and_begins_none(work_dir):
    seen = []

    def stop(rows):
        seen.append(rows)
        work_dir.stop()

    job = RangeJob(stop, work_dir, f"{__name__}:reading")
    assert not job.run(PIECE) and not job.run(PIECE)
    assert seen == [3] and not work_dir.finished() and work_dir.error() is None


def test_a_users_mistake_is_kept_and_a_bug_is_raised(work_dir, monkeypatch):
    def refuse(rows):
        raise ConfigError("no such column", where="columns", fix="name another")

    assert not RangeJob(refuse, work_dir, f"{__name__}:reading").run(PIECE)
    assert str(work_dir.error()) == "columns: no such column\n  fix: name another" and work_dir.stopped()
    work_dir.begin()

    def full(self, index, error):
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(WorkDir, "fail", full)
    with pytest.raises(ConfigError, match="no such column"):
        RangeJob(refuse, work_dir, f"{__name__}:reading").run(PIECE)
    with pytest.raises(ZeroDivisionError):
        RangeJob(lambda rows: 1 / 0, work_dir, f"{__name__}:reading").run(PIECE)
