"""The example of days that land: predictions that appear whole, drift on the day of the blizzard, labels that come later."""

import datetime
import importlib
import json
import shutil
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "predict-and-monitor"


@pytest.mark.long
def test_the_blizzard_raises_alarms_and_ends_in_a_retrain(typed, tmp_path, monkeypatch, capsys):
    folder = shutil.copytree(
        EXAMPLE, tmp_path / "example", ignore=shutil.ignore_patterns("*.pyc", "store", "scored", "*ed", "incoming")
    )
    monkeypatch.syspath_prepend(str(folder))
    for name in ("land", "story"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    story = importlib.import_module("story")
    monkeypatch.setattr(story, "DAYS", [datetime.date(2013, 2, 8), datetime.date(2013, 2, 10)])
    answers = []

    def headway(command, *arguments):  # as story.headway, without a process and its imports for each
        trains = command == "run" or "--retrain" in arguments
        quicker = ("--set", "training.epochs=2") if trains else ()
        done = typed(command, folder, *arguments, *quicker, "--json")
        assert done.returncode in (story.DONE, story.ALARM), done.stderr
        answers.append(json.loads(done.stdout))
        return answers[-1]

    monkeypatch.setattr(story, "headway", headway)
    story.main()
    _, scored, drift, _, decay = answers
    assert [row["rows"] for row in scored["spans"]] == [458]
    (part,) = (folder / "scored" / "span=2013-02-08").glob("part-*.parquet")
    assert pq.read_metadata(part).num_rows == 458 and {"flight", "prediction"} <= set(pq.read_schema(part).names)
    worse, alarm = drift["alarms"]
    assert worse.startswith("2013-02-05: the champion, version 1, has become worse"), "a day of auc 0.86, by its rows"
    assert alarm.startswith("2013-02-08: column 'sched_dep_time' has drifted")
    (alarm,) = decay["alarms"]
    assert alarm.startswith("2013-02-08: the champion, version 1, has become worse since it was promoted: auc")
    assert decay["run"]["spans"][-1] == "2013-02-08" and len(decay["run"]["spans"]) == 28
    said = capsys.readouterr().out
    assert "2 days scored, 3 alarms: 2 of the champion, 1 of the data" in said and "retrained: " in said
