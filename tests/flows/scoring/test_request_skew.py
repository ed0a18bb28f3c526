"""`headway skew`: a log of requests against the raw rows, through the real model."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS = 3000


@pytest.fixture
def data(served):
    """data.parquet with a key, and a log of all its rows as headway serve writes it, with the predictions of version 1."""
    r = np.random.default_rng(0)
    raw = pa.table(
        {
            "id": pa.array(np.arange(ROWS) + 100),
            "dep delay": pa.array(r.normal(10, 20, ROWS).astype(np.float32), mask=r.random(ROWS) < 0.03),
            "hour": pa.array(r.integers(0, 24, ROWS)),
            "carrier": pa.array(np.array(["AA", "UA", "B6"])[r.integers(0, 3, ROWS)]),
            "taste": pa.array(list(r.normal(size=(ROWS, 3)).astype(np.float32))),
            "tags": pa.array([["a"]] * ROWS),
        }
    )
    pq.write_table(raw, served / "data.parquet")
    return raw


def log(folder, raw, predictions, keys=("id",), **changes):
    columns = {name: raw[name].to_pylist() for name in ("dep delay", "hour", "carrier")} | changes
    day = folder / "store" / "requests" / "flights" / "2026-11-22"
    day.mkdir(parents=True, exist_ok=True)
    lines = []
    for start in range(0, ROWS, 500):
        at = range(start, min(start + 500, ROWS))
        rows = [{name: values[i] for name, values in columns.items() if values[i] is not None} for i in at]
        entry = {
            "version": 1,
            "instances": rows,
            "keys": [
                named[0] if len(named) == 1 else named for named in ([raw[k][i].as_py() for k in keys] for i in at)
            ],
        }
        lines.append(json.dumps(entry | {"predictions": [{"probability": predictions[i]} for i in at]}))
    (day / "a.jsonl").write_text("\n".join(lines) + "\n")


@pytest.mark.slow
def test_a_log_is_joined_with_the_data_and_what_differs_is_named(served, typed, data, tmp_path):
    asked = ("skew", served, "--input", served / "data.parquet", "--key", "id")
    assert "no requests were logged" in typed(*asked, check=3).stderr
    other = served / "other.jsonl"
    other.write_text('{"instances": [{"hour": 3}], "keys": ["UA-1"]}')
    assert "logged id='UA-1', in the data id=100" in typed(*asked, "--requests", other, check=3).stderr
    said = typed(*asked[:-1], "ID", "--requests", other, check=2).stderr
    assert "--key: there is no column 'ID'" in said
    scored = tmp_path / "scored"
    typed("predict", served, "--input", served / "data.parquet", "--output", scored, "--json", check=0)
    predictions = pq.read_table(next(scored.glob("part-*.parquet")))["prediction"].to_pylist()
    log(served, data, predictions)
    said = typed(*asked, check=0).stdout
    assert said.startswith("3,000 of 3,000 logged rows that version 1 answered are in the data, by id")
    assert "all 3 columns and the predictions agree" in said and "not compared" in said and "taste, tags" in said

    r = np.random.default_rng(1)
    delay = np.array([np.nan if v is None else v for v in data["dep delay"].to_pylist()])
    shifted = [None if np.isnan(v) else v for v in delay + 0.3 * np.nanstd(delay)]
    hour = r.permutation(data["hour"].to_numpy()).tolist()
    carrier = [None if gone else c for c, gone in zip(data["carrier"].to_pylist(), r.random(ROWS) < 0.08, strict=True)]
    log(served, data, predictions, **{"dep delay": shifted, "hour": hour, "carrier": carrier})
    result = json.loads(typed(*asked, "--json", check=3).stdout)
    assert {f["column"]: f["kind"] for f in result["findings"]} == {
        "dep delay": "shifted",
        "hour": "moved",
        "carrier": "lost",
    }
    assert result["predictions"]["differing"] == 0  # the log's predictions are those of the data's rows

    # keys of several columns, one of which repeats; what is a key is not compared
    log(served, data, predictions, keys=("hour", "id"), carrier=carrier)
    result = json.loads(typed(*asked[:-1], "hour,id", "--json", check=3).stdout)
    assert (result["keys"], result["rows"]) == (["hour", "id"], ROWS)
    assert {f["column"]: f["kind"] for f in result["findings"]} == {"carrier": "lost"}
    said = typed(*asked[:-1], "hour,id,carrier", check=3).stderr
    assert "2" in said and "3" in said and "keys" in said, said

    missing = typed("skew", served, "--input", served / "data.parquet", check=2)
    assert "no column with role: key" in missing.stderr and "--key" in missing.stderr
