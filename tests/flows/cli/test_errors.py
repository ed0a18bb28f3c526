"""An error is told once: without fingerprints, and with --json as fields."""

import json
import random
import re

import pytest

from headway.storage.store import Store

PIPELINE = """
name: churn
source: {format: csv, path: "data/{span}.csv"}
label: y
split: {mode: time}
"""


@pytest.fixture
def churn(tmp_path):
    """write(**files) -> the folder of a pipeline of three months, some of which are not as they should be."""
    (tmp_path / "data").mkdir()
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    r = random.Random(7)
    for month in ("2024-01", "2024-02", "2024-03"):
        rows = [f"{r.gauss(0, 1):.4f},{r.choice('abc')},{r.randrange(2)}" for _ in range(300)]
        (tmp_path / "data" / f"{month}.csv").write_text("\n".join(["x,c,y", *rows]) + "\n")
    return tmp_path


def rejected(folder):
    """Most rows of the last month cannot be read, which validation refuses."""
    file = folder / "data" / "2024-03.csv"
    (folder / "schema.pbtxt").write_text(SCHEMA)
    file.write_text(re.sub(r"^-?\d\.\d+,", "oops,", file.read_text(), count=100, flags=re.MULTILINE))


SCHEMA = "\n".join(
    f'feature {{ name: "{name}" type: {kind} presence {{ min_fraction: 1.0 }} }}'
    for name, kind in (("x", "FLOAT"), ("c", "BYTES"), ("y", "INT"))
)


def cut_off(folder):
    (folder / "data" / "2024-02.csv").write_bytes(b"\x1f\x8b not a whole gzip file")


def misspelt(folder):
    (folder / "pipeline.yaml").write_text(PIPELINE + "model: {hiden: [4]}\n")


def gone(folder):
    (folder / "pipeline.yaml").unlink()


CASES = [
    (rejected, 3, "DataError", "rows of span 2024-03"),
    (cut_off, 3, "DataError", "2024-02.csv"),
    (misspelt, 2, "ConfigError", "model.hiden: unknown key"),
    (gone, 2, "ConfigError", "no such file"),
]


@pytest.mark.parametrize(("spoil", "code", "kind", "words"), CASES, ids=lambda case: getattr(case, "__name__", None))
def test_an_error_is_printed_once_without_a_fingerprint_and_as_fields_with_json(spoil, code, kind, words, churn, typed):
    spoil(churn)
    said = typed("run", *([] if spoil is rejected else ["--to", "validate"]), churn, check=code)
    text = said.stdout + said.stderr
    assert text.count(words) == 1, text
    assert text.count("headway run:") == 1
    told = text[text.index("headway ") :]
    assert not re.search(r"[0-9a-f]{32}", told) and "/stages/" not in told, told

    answered = typed("run", churn, "--json", check=code)
    answer = json.loads(answered.stdout)
    assert answer["exit_code"] == code and set(answer["error"]) == {"kind", "problem", "where", "fix"}
    assert answer["error"]["kind"] == kind and answer["error"]["problem"]
    assert words in f"{answer['error']['where']}: {answer['error']['problem']}"
    assert not answered.stderr, "it is in the answer"


def test_a_step_that_fails_is_named_and_not_its_folder(churn, typed):
    rejected(churn)
    error = json.loads(typed("run", churn, "--json", check=3).stdout)["error"]
    assert error["where"] == "validate" and error["problem"].startswith("validation found 1 error: ")
    assert error["fix"].startswith("headway quarantine shows them")
    # the command whose answer they are prints them there
    said = typed("run", "--to", "validate", churn, check=0)
    assert (said.stdout + said.stderr).count("were rejected; at most") == 1


def test_a_backfill_tells_of_a_window_that_failed_in_its_table(churn, typed):
    rejected(churn)
    said = typed("backfill", churn, "--from", "2024-03", "--window", "2", "--upto", "train", check=3)
    text = " ".join((said.stdout + said.stderr).split())  # the table wraps its last column
    assert text.count("were rejected; at most") == 1 and "headway quarantine shows them" in text, text
    (row,) = json.loads(
        typed("backfill", churn, "--from", "2024-03", "--window", "2", "--upto", "train", "--json", check=3).stdout
    )["rows"]
    assert row["state"] == "failed" and "were rejected" in row["error"]


def test_a_damaged_record_names_the_store(churn, typed):
    typed("run", "--to", "ingest", churn, check=0)
    (record,) = (Store(churn / "store").runs_folder).glob("*.json")
    record.write_text("{")
    said = typed("show", record.stem, churn)
    assert said.returncode and (said.stdout + said.stderr).count("headway show:") == 1
