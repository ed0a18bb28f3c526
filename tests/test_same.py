"""bench/same.py: a checkout is as itself, each planted change is found where it is, and older spellings are tried."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

BENCH = Path(__file__).parent.parent / "bench"


@pytest.fixture(scope="module")
def same():
    spec = importlib.util.spec_from_file_location("same", BENCH / "same.py")
    module = sys.modules["same"] = importlib.util.module_from_spec(spec)
    before = sys.path.copy()
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = before
    for name in ("same", "same_pipelines", "common"):
        del sys.modules[name]


def checkout(folder, **programs):
    """A folder with the given programs in its environment."""
    (folder / ".venv" / "bin").mkdir(parents=True)
    for name, script in programs.items():
        file = folder / ".venv" / "bin" / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
    return folder


@pytest.mark.long
def test_a_checkout_does_the_same_as_itself(tmp_path):
    programs = {"python": f'exec {sys.executable} "$@"', "headway": f'exec {sys.executable} -P -m flows.cli "$@"'}
    here = checkout(tmp_path / "here", **programs)
    line = [sys.executable, BENCH / "same.py", here, here, "--only", "jsonl", "--rows", "300"]
    done = subprocess.run(line, cwd=BENCH.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("| jsonl"))
    assert row.count(" - ") == 1, "no rows are rejected"
    assert re.findall(r"\w+", row) == ["jsonl", *["same"] * 8]


def result():
    """As a run of a small pipeline ends."""
    rows = {"split": ["train", "train", "eval"], "id": [3, 1, 2], "x": [1.0, 2.0, None], "words": [["a"], [], None]}
    rows = pa.table(rows | {"prediction": [None, None, 0.25]})
    column = {"column": "x", "rows": 2, "mean": 1.5, "top": [[1.0, 1], [2.0, 1]]}
    return {
        "rows": rows.drop_columns(["prediction"]),
        "rejected": pa.Table.from_pylist([{"file": "a.csv", "row": 4, "column": "x", "reason": "no number"}]),
        "splits": rows,
        "statistics": {"train": [column, {"column": "words", "rows": 2}], "eval": []},
        "transform": {
            "fitted": [{"column": {"name": "x"}, "ops": [{"op": "standardize", "mean": 1.5, "words": None}]}]
        },
        "predictions": [
            rows.filter(pa.array([False, False, True])).select(["id", "prediction"]),
            pa.table({"p": [0.5]}),
        ],
        "metrics": {"metrics": {"auc": 0.75}, "baselines": {"linear": {"auc": 0.5}}},
        "verdict": {"state": "promoted", "version": 1},
        "signatures": {"serving_default": {"in": {"x": "float32 [-1]"}, "out": {"probability": "float32 [-1]"}}},
    }


def changed(table, column, values):
    return table.set_column(table.column_names.index(column), column, [values])


def planted(*path, value):
    """A change of what lies at a path of the result: a key of a dict, a place of a list, or the name of a column."""

    def put(old, names):
        if not names:
            return value(old) if callable(value) else value
        name, *rest = names
        if isinstance(old, pa.Table):
            return changed(old, name, value)
        return (
            [*old[:name], put(old[name], rest), *old[name + 1 :]]
            if isinstance(old, list)
            else old | {name: put(old[name], rest)}
        )

    return lambda result: put(result, path)


PLANTED = [
    (planted("rows", "x", value=[1.0, 2.5, None]), "rows", "x: 1 of 3 rows by up to 0.5"),
    (planted("rows", "x", value=[1.0, None, None]), "rows", "x: 1 of 3 rows"),
    (planted("rows", "x", value=pa.array([1.0, 2.0, None], pa.float32())), "rows", "x: double became float"),
    (planted("rows", value=lambda rows: rows.take([1, 0, 2])), "rows", "2 of 3 rows in another order"),
    (planted("rows", value=lambda rows: rows.slice(1)), "rows", "1 of 3 rows gone"),
    (planted("rows", value=lambda rows: rows.drop_columns(["words"])), "rows", "words: list<item: string> became no"),
    (planted("rejected", "reason", value=["other"]), "rejected", "reason: 1 of 1 rows"),
    (planted("splits", "split", value=["eval", "train", "eval"]), "splits", "1 of 3 rows from train to eval"),
    (planted("transform", "fitted", 0, "ops", 0, "op", value="log"), "transform", "fitted[x].ops[0].op"),
    (planted("predictions", 0, "prediction", value=[0.2501]), "predictions", "prediction: 1 of 1 rows by up to 0.0001"),
    (planted("predictions", 1, "p", value=[0.6]), "predictions", "p: 1 of 1 rows by"),
    (planted("metrics", "metrics", "auc", value=0.7501), "metrics", "auc"),
    (planted("verdict", "state", value="rejected"), "verdict", "state"),
    (planted("signatures", "serving_default", "in", value={}), "signatures", "serving_default.in.x"),
]


@pytest.mark.parametrize(("plant", "aspect", "what"), PLANTED)
def test_a_planted_change_is_found_where_it_is_and_nowhere_else(same, plant, aspect, what):
    found = same.compare(result(), plant(result()))
    assert [name for name, differences in found.items() if differences] == [aspect]
    assert any(what in one.what for one in found[aspect]), found[aspect]
    table = same.report({"one": found})
    row = dict(zip(["pipeline", *same.ASPECTS], re.split(r" *\| *", table.splitlines()[2])[1:], strict=False))
    assert what in row.pop(aspect) and set(row.values()) == {"one", "same"}
    assert f"one, {aspect}: " in table


def test_what_is_equal_within_the_tolerance_or_absent_on_both_sides_is_the_same(same):
    assert not any(same.compare(result(), result()).values())
    new = result()
    new["statistics"]["train"][0] |= {"mean": 1.5 * (1 + 1e-12), "new_and_empty": [], "new_and_false": False}
    new["predictions"][1] = pa.table({"p": [0.500009]})
    new["metrics"]["metrics"]["auc"] = 0.750004
    assert not any(same.compare(result(), new).values())
    assert same.different_values({"mean": 1.5}, {"mean": 1.5000001}), "statistics are of the same values"
    assert same.different_values({"raw": True}, {"raw": False}) and same.different_values({"zeros": 0}, {})
    nan = float("nan")
    alike = pa.table({"id": [1, 1], "x": [1, 2]})
    assert same.different_rows(alike, changed(alike, "x", [1, 3])), "the second row with this id"
    assert same.equal([1, nan], [1, nan], 0.0) and not same.equal(nan, 1.0, 0.0) and not same.equal(True, 1, 0.0)


def test_of_many_differences_the_first_are_told_and_the_others_counted(same):
    many = [same.Difference(f"train[x{number}].mean") for number in range(100)]
    table = same.report({"one": {"statistics": many}})
    assert "train[x0].mean; 99 more" in table and "train[x19].mean\n" in table and "train[x20].mean" not in table
    assert table.endswith("one, statistics: 80 more")


def test_a_pipeline_that_fails_is_told_with_its_message(same):
    table = same.report({"one": same.compare({"error": "headway run ended with 3\nno such file"}, result())})
    row = table.splitlines()[2]
    assert "OLD: headway run ended with 3" in row and row.count("| -") == 8 and "no such file" in table


def test_the_older_spelling_of_a_command_or_key_is_tried_where_the_newer_one_is_refused(same, tmp_path, monkeypatch):
    script = 'case "$*" in "stats . --json") echo "{\\"is\\": 1}";; run*--to*) echo refused >&2; exit 2;; run*)\n'
    script += "grep -q older pipeline.yaml && echo '{\"ran\": 1}' || exit 2;; *) exit 1;; esac"
    side = same.Checkout(checkout(tmp_path / "old", headway=script), tmp_path / "work", {})
    assert side.headway("statistics", tmp_path) == {"is": 1}
    with pytest.raises(same.CommandError, match="headway show ended with 1"):
        side.headway("show", tmp_path)
    monkeypatch.setattr(same, "KEYS", {"newer": "older"})
    (tmp_path / "pipeline.yaml").write_text("key: newer\n")
    assert side.run(tmp_path, ()) == {"ran": 1} and (tmp_path / "pipeline.yaml").read_text() == "key: older\n"
    (tmp_path / "pipeline.yaml").write_text("key: other\n")
    with pytest.raises(same.CommandError, match="headway run ended with 2"):
        side.run(tmp_path, ())
