"""What validation says of a window: severity, a sentence with its numbers, and what to do."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headway.errors import DataError
from headway.monitor import Monitor
from headway.schema.columns import Column, Schema
from headway.tabular.splits import SplitConfig
from headway.validation.anomaly import KINDS, Validated
from headway.validation.stage import FILE, SpanFacts, ValidateConfig, ValidateRequest, validate
from tests.headway.statistics.made import statistics_of
from tests.told import Told

ROWS = 2000
RANDOM = np.random.default_rng(0)
GOOD = {
    "hour": RANDOM.permutation(np.arange(ROWS) % 24),
    "delay": RANDOM.permutation(np.arange(ROWS) % 100).astype(np.float32),
    "carrier": [(b"AA", b"UA")[i] for i in RANDOM.permutation(np.arange(ROWS) % 2)],
    "label": np.arange(ROWS) % 2,
}
SCHEMA = Schema(
    columns=(
        Column(name="hour", type="int64", nullable=True),
        Column(name="delay", type="float32", nullable=True),
        Column(name="carrier", type="bytes", nullable=True, encoding="dictionary"),
    ),
    ranges={"hour": (0, 23), "delay": (-10, 1000.5)},
    domains={"carrier": ("AA", "UA")},
    required=("hour", "carrier"),
)
QUIET = ValidateConfig(severity={"leakage": "ignore"})
"""Not what a test with few values in turn is about."""
SPAN = SpanFacts(span="2013-01", read=5000, written=4990, quarantined=0, filtered=10)


def _batch(columns):
    arrays = {name: pa.array(v, pa.binary()) if isinstance(v[0], bytes) else pa.array(v) for name, v in columns.items()}
    cast = {pa.float64(): pa.float32(), pa.null(): pa.float32()}
    return pa.record_batch({name: a.cast(cast.get(a.type, a.type)) for name, a in arrays.items()})


@pytest.fixture
def check(tmp_path):
    """check(train={...}, eval={...}, **request) -> the stage's result; columns that are left out are good ones."""

    def run(train=None, *, drop=(), spans=(SPAN,), schema=SCHEMA, config=None, rows=None, monitor=None, **request):
        splits = {"train": train or {}, "eval": request.pop("eval", {})}
        splits |= {name: request.pop(name) for name in ("test",) if name in request}
        for name, changes in splits.items():
            columns = {key: value for key, value in (GOOD | changes).items() if key not in drop}
            batch = _batch(columns)
            kinds = {pa.int64(): "int64", pa.float32(): "float32", pa.binary(): "bytes"}
            stored = [Column(name=f.name, type=kinds[f.type], nullable=True) for f in batch.schema]
            statistics_of(stored, batch.slice(0, (rows or {}).get(name, ROWS))).save(tmp_path / name)
        made = ValidateRequest(
            schema=schema,
            statistics=tmp_path,
            splits=tuple(splits),
            spans=spans,
            config=config or ValidateConfig(),
            **request,
        )
        return validate(made, tmp_path, monitor or Monitor())

    return run


def only(result):
    """The one anomaly: (severity, kind, column, where, message)."""
    [anomaly] = result["anomalies"]
    assert anomaly["fix"]
    return tuple(anomaly[name] for name in ("severity", "kind", "column", "where", "message"))


def changed(name, count, value):
    """The good column with `count` values replaced."""
    return {name: [value] * count + list(GOOD[name])[count:]}


def test_good_data_has_no_anomalies(check, tmp_path):
    result = check()
    strengths = result["strengths"]
    assert set(strengths) == {"carrier", "delay", "hour"} and all(0.4 < auc < 0.6 for auc in strengths.values())
    nothing = {"anomalies": [], "errors": 0, "warnings": 0, "splits": [], "proof": []}
    assert result == nothing | {"strengths": strengths}
    assert json.loads((tmp_path / FILE).read_text()) == result
    assert Validated.model_validate(result).stopping == []


@pytest.mark.parametrize(
    ("bad", "severity", "said"),
    [
        (-1.0, "error", "column 'w' weights a row of train by -1: a weight is not below 0"),
        (float("inf"), "error", "column 'w' weights 3 rows of train by inf: a weight is a finite number"),
        (None, "warning", "column 'w' has no weight for 3 rows of train, which do not count"),
    ],
)
def test_a_weight_that_cannot_be_one_is_said(check, bad, severity, said):
    good = [1.0, 0.0] * (ROWS // 2)
    result = check({"w": [bad] * 3 + good[3:]}, eval={"w": good}, weight="w", features=("hour", "delay", "carrier"))
    assert [severity, "weight", said] in [[a["severity"], a["kind"], a["message"]] for a in result["anomalies"]]
    assert not [a for a in check({"w": good}, eval={"w": good}, weight="w")["anomalies"] if a["kind"] == "weight"]


def test_a_date_beyond_its_bound_is_told_as_a_date(check):
    columns = (*SCHEMA.columns, Column(name="day", type="int64", nullable=True, temporal="date"))
    schema = SCHEMA.model_copy(update={"columns": columns, "ranges": {"day": (0, 15_706)}})
    days = np.arange(ROWS) % 3 + 15_705
    _, kind, *_, message = only(check({"day": days}, eval={"day": days.clip(max=15_706)}, schema=schema))
    assert kind == "range" and "reaches 2013-01-02 in the train rows, above the schema's bound of 2013-01-01" in message


def test_too_many_rejected_rows(check):
    bad = SpanFacts(span="2013-02", read=1000, written=900, quarantined=60, filtered=40)
    severity, kind, _, where, message = only(check(spans=(SPAN, bad)))
    assert (severity, kind, where) == ("error", "quarantine", "2013-02")
    assert "60 of 1,000 rows of span 2013-02 (6.00%)" in message and "1.00%" in message
    severity, kind, *_, message = only(check(spans=(bad,), config=ValidateConfig(max_quarantined=0.06)))
    assert (severity, kind, message) == ("warning", "quarantine", "60 of 1,000 rows (6.00%) were rejected")


def test_rows_without_a_label_are_said_unless_a_filter_may_have_left_them_out(check):
    spans = (SPAN, SpanFacts(span="2013-02", read=5000, written=500, quarantined=0, filtered=4500))
    severity, kind, *_, message = only(check(spans=spans, filters=False))
    assert (severity, kind) == ("warning", "label") and message.startswith("4,510 of 10,000 rows (45%) have no label")
    assert check(spans=spans)["anomalies"] == check(spans=(SPAN,), filters=False)["anomalies"] == []


def test_columns_that_the_schema_lacks_are_said(check):
    found = only(check(unread=("w", "v")))
    assert found[:2] == ("warning", "new column")
    assert found[4] == "columns 'w', 'v' of the newest files are not in the schema and left out"


@pytest.mark.parametrize(("others", "severity"), [((), "error"), ((SPAN,), "warning")])
def test_a_span_without_rows(check, others, severity):
    empty = SpanFacts(span="2013-03", read=70, written=0, quarantined=0, filtered=70)
    assert only(check(spans=(*others, empty)))[:4] == (severity, "empty span", None, "2013-03")


@pytest.mark.parametrize("split", ["train", "eval"])
def test_an_empty_split(check, split):
    found = only(check(rows={split: 0}))
    assert found[:4] == ("error", "too few rows", None, split)
    assert f"the {split} split has 0 rows; at least 1 are needed" in found[4]
    result = check(config=ValidateConfig(min_train_rows=ROWS + 1, min_eval_rows=ROWS + 1))
    assert result["errors"] == 2


def test_an_eval_split_of_an_empty_span_names_the_span(check):
    spans = (SPAN, SPAN.model_copy(update={"span": "2013-02", "written": 0}))
    fixes = [a["fix"] for a in check(rows={"eval": 0}, spans=spans)["anomalies"] if a["kind"] == "too few rows"]
    assert len(fixes) == 1 and fixes[0].startswith("span 2013-02 has no rows: bring them, end the window before")


def test_no_test_rows_are_a_warning(check):
    assert check(rows={"eval": 500})["anomalies"] == []
    assert only(check(test={}, rows={"test": 0}))[:4] == ("warning", "too few rows", None, "test")


def test_a_required_column_with_nulls(check):
    found = only(check(changed("hour", 20, None)))
    assert found[:4] == ("warning", "presence", "hour", "train")
    assert "missing in 20 of 2,000 train rows (1.00%)" in found[4]
    assert only(check(changed("hour", 101, None)))[0] == "error"
    assert check(changed("delay", 500, None))["anomalies"] == []  # the schema does not demand it


@pytest.mark.parametrize(("split", "severity"), [("train", "error"), ("eval", "warning")])
@pytest.mark.parametrize(("value", "what"), [(None, "no value"), (float("nan"), "no finite number")])
def test_a_column_without_any_value(check, split, severity, value, what):
    found = only(check(**{split: changed("delay", ROWS, value)}))
    assert found[:4] == (severity, "all missing", "delay", split)
    assert f"'delay' has {what} in any of the 2,000 {split} rows" in found[4]


@pytest.mark.parametrize(("since", "severity"), [("2013-02", "warning"), ("2013-01", "error")])
def test_a_column_that_came_with_the_eval_span_has_no_value_in_train_yet(check, since, severity):
    columns = tuple(c.model_copy(update={"since": since} if c.name == "delay" else {}) for c in SCHEMA.columns)
    spans = (SPAN, SPAN.model_copy(update={"span": "2013-02"}))
    found = only(check({"delay": [None] * ROWS}, spans=spans, schema=SCHEMA.model_copy(update={"columns": columns})))
    assert found[:2] == (severity, "all missing")


def test_values_outside_a_domain(check):
    found = only(check(changed("carrier", 40, b"ZZ")))
    assert found[:4] == ("warning", "unseen values", "carrier", "train")
    assert "40 of 2,000 train rows (2.00%): 'ZZ' (40)" in found[4]
    assert only(check(changed("carrier", 101, b"ZZ")))[0] == "error"
    assert only(check(changed("carrier", 101, b"ZZ"), config=ValidateConfig(max_unseen=0.2)))[0] == "warning"


def test_a_domain_that_cannot_be_checked_is_reported(check):
    found = only(check({"carrier": [b"x" * 5000] + [b"ZZ"] * (ROWS - 1)}))
    assert found[:4] == ("warning", "unseen values", "carrier", "train")
    assert "has a value of 5,000 bytes" in found[4] and "was not checked against the schema's string_domain" in found[4]


def test_of_many_unseen_values_the_most_frequent_are_named(check):
    values = [b"odd"] * 3 + [b"odd%d" % i for i in range(8)] + [b"\xff", b"x" * 100]
    message = only(check({"carrier": values + [b"AA"] * (ROWS - len(values))}))[4]
    assert "'odd' (3), '" in message and message.endswith("and 6 more")
    long = only(check({"carrier": [b"\xff", b"x" * 100] + [b"AA"] * (ROWS - 2)}))[4]
    assert "x...'" in long and "\\xff" in long and len(long) < 250


def test_values_beyond_a_bound(check):
    found = only(check(changed("hour", 1, 24)))
    assert found[:4] == ("error", "range", "hour", "train")
    assert "'hour' reaches 24 in the train rows, above the schema's bound of 23" in found[4]
    low = only(check(eval=changed("delay", 1, -10.5)))
    assert low[:4] == ("error", "range", "delay", "eval")
    assert "reaches -10.5 in the eval rows, below the schema's bound of -10" in low[4]
    assert "reaches 12,345,678 in" in only(check(changed("hour", 1, 12_345_678)))[4]


def test_a_constant_column(check):
    found = only(check({"hour": [7] * ROWS}))
    assert found[:4] == ("warning", "constant", "hour", "train")
    assert "the same value in all 2,000 train rows" in found[4]
    assert check({"hour": [7] * ROWS}, auto=("hour",))["anomalies"] == [], "the transform leaves it out and says so"
    assert check(eval={"hour": [7] * ROWS})["anomalies"] == []  # nothing is learned from eval
    assert check({"delay": [7.0, None] * (ROWS // 2)}, config=QUIET)["anomalies"] == []  # being missing tells something


def test_nan_and_infinity(check):
    values = [float("nan")] * 3 + [float("inf")] * 2 + [1.0, 2.0] * (ROWS // 2)
    result = check({"delay": values[:ROWS]}, config=QUIET)
    assert [(a["severity"], a["kind"]) for a in result["anomalies"]] == [("warning", "nan"), ("warning", "infinite")]
    assert "'delay' is NaN in 3 of 2,000 train rows (0.15%)" in result["anomalies"][0]["message"]


def test_a_column_of_another_type_than_the_schema_says(check):
    result = check(train={"carrier": np.arange(ROWS)}, eval={"carrier": np.arange(ROWS)})
    assert [(a["kind"], a["severity"]) for a in result["anomalies"]] == [("type", "warning")] * 2
    assert "stored as int64, and the schema says bytes" in result["anomalies"][0]["message"]
    assert {a["kind"] for a in check({"hour": GOOD["carrier"]}, config=QUIET)["anomalies"]} == {"type"}


def test_a_missing_column(check):
    result = check(drop=("delay",), stored=("hour", "delay", "carrier"))
    wanted = [("error", "missing column", "delay", "train"), ("error", "missing column", "delay", "eval")]
    assert [(a["severity"], a["kind"], a["column"], a["where"]) for a in result["anomalies"]] == wanted
    assert check(drop=("delay",), stored=("hour", "carrier"))["anomalies"] == []


@pytest.mark.parametrize(("value", "shown"), [(1, "1"), (0.25, "0.25"), (b"yes", "'yes'")])
def test_a_single_label(check, value, shown):
    result = check(train={"label": [value] * ROWS}, eval={"label": [value] * ROWS})
    wanted = [("error", "one label", "train"), ("warning", "one label", "eval")]
    assert [(a["severity"], a["kind"], a["where"]) for a in result["anomalies"]] == wanted
    assert f"every one of the 2,000 train rows has the label {shown}" in result["anomalies"][0]["message"]


def test_of_a_class_of_one_row_no_leak_is_looked_for_and_that_is_said(check):
    [blind] = check({"label": [1] + [0] * (ROWS - 1)})["anomalies"]
    assert (blind["severity"], blind["kind"]) == ("info", "leakage")
    assert "not checked: fewer than 30 of 2,000 train rows have another label" in blind["message"]
    assert check({"label": [1] + [0] * (ROWS - 1)}, task="regression")["anomalies"] == []


def test_labels_of_eval_that_train_never_saw(check):
    two, three = [b"a", b"b"] * (ROWS // 2), [b"c"] * 10 + [b"a", b"b"] * (ROWS // 2 - 5)
    found = only(check(train={"label": two}, eval={"label": three}))
    assert found[:4] == ("error", "unseen label", "label", "eval")
    wanted = "10 of 2,000 eval rows have a label that no train row has: 'c' (10); train has 'a' (1,000), 'b' (1,000)"
    assert found[4] == wanted
    two, three = np.arange(ROWS) % 2, np.where(np.arange(ROWS) < 30, 2, np.arange(ROWS) % 2)
    found = only(check(train={"label": two}, eval={"label": three}))
    assert found[0] == "error" and "30 of 2,000 eval rows have a label that no train row has: 2 (30)" in found[4]
    found = only(check(train={"label": two}, eval={"label": two}, test={"label": three}))
    assert (found[0], found[3]) == ("warning", "test")  # which judges nothing
    numbers = np.arange(ROWS).astype(np.float32)
    assert check(train={"label": numbers}, eval={"label": numbers + 1})["anomalies"] == []  # a regression


@pytest.mark.parametrize(
    ("train", "lacking", "severity"),
    [
        ([0] * 1999 + [1], [0] * ROWS, "error"),  # of two classes one
        ([0] * 1000 + [1] * 990 + [2] * 10, [0, 1] * 1000, "error"),
        ([0] * 1000 + [1] * 995 + [2] * 5, [0, 1] * 1000, "error"),
        ([0] * 1000 + [1] * 996 + [2] * 4, [0, 1] * 1000, "warning"),  # chance leaves four out in one of 55 draws
    ],
)
def test_a_class_of_train_that_eval_lacks_beyond_chance_is_an_error(check, train, lacking, severity):
    result = check(train={"label": train}, eval={"label": lacking})
    [found] = [a for a in result["anomalies"] if a["kind"] == "missing class"]
    assert (found["severity"], found["where"]) == (severity, "eval") and "split.key" in found["fix"]
    assert f"none of the 2,000 eval rows has the label {max(train)} (" in found["message"]


def test_a_class_of_few_rows_may_miss_a_small_eval_by_chance(check):
    train = [0] * 1000 + [1] * 997 + [2] * 3
    result = check(train={"label": train}, rows={"eval": 200})
    wanted = [("warning", "eval")]
    assert [(a["severity"], a["where"]) for a in result["anomalies"] if a["kind"] == "missing class"] == wanted


def test_infinite_labels(check):
    values = [float("inf")] * 4 + list(np.arange(ROWS - 4, dtype=np.float64))
    found = only(check({"label": values}))
    assert found[:4] == ("warning", "label", "label", "train")
    assert "infinite in 4 of 2,000 train rows" in found[4]


def test_errors_come_first_and_only_what_does_not_end_the_run_is_logged(check):
    monitor = Told()
    result = check({"hour": [7] * ROWS, **changed("delay", 1, 2000.0)}, monitor=monitor)
    assert [a["kind"] for a in result["anomalies"]] == ["range", "constant"]
    assert (result["errors"], result["warnings"]) == (1, 1)
    (stopping,) = Validated.model_validate(result).stopping
    assert (stopping.kind, stopping.column, stopping.where, stopping.value) == ("range", "delay", "train", 2000.0)
    assert stopping.expected == 1000.5 and stopping.fix
    assert [line.split(":")[0] for line in monitor.lines] == ["warning"]


def test_findings_of_the_split_proof_have_the_severity_of_the_config(check, tmp_path):
    overlap = {"severity": "error", "kind": "key overlap", "where": "train, eval", "message": "3 keys", "fix": "x"}
    proof = {"says": ["k is unique"], "anomalies": [overlap], "splits": {"train": {"rows": ROWS, "keys": 7}}}
    (tmp_path / "splits.json").write_text(json.dumps(proof))
    result = check(proof=tmp_path, split=SplitConfig(eval=0.5))
    assert only(result)[:2] == ("error", "key overlap") and result["proof"] == ["k is unique"]
    train, eval_ = result["splits"]
    assert (train["keys"], eval_["keys"], eval_["share"]) == (7, "", "50.00%") and list(train) == list(eval_)
    milder = ValidateConfig(severity={"key_overlap": "info"})
    assert only(check(proof=tmp_path, config=milder))[0] == "info"
    (tmp_path / "splits.json").unlink()
    with pytest.raises(DataError, match="cannot be read"):
        check(proof=tmp_path)


def test_the_guide_lists_every_kind_of_finding_and_each_can_be_given_a_severity():
    guide = Path(__file__).parents[3] / "docs" / "validation.md"
    table = re.search(r"\| kind \|.*?\n\n", guide.read_text(encoding="utf-8"), re.DOTALL)[0]
    listed = [
        kind for line in table.split("\n|") for kind in re.findall(r"`(\w+)`", line.lstrip("| ").partition("|")[0])
    ]
    assert sorted(listed) == sorted(kind.replace(" ", "_") for kind in KINDS)
    ValidateConfig(severity=dict.fromkeys(listed, "ignore"))


def test_an_identifier_that_the_transform_leaves_out_has_not_moved_by_time(check):
    """Order numbers go on counting in eval: nothing to tell of a column that the model never sees."""
    split = SplitConfig(mode="column", column="day", eval_from="2013-10-01")
    later = {"hour": GOOD["hour"] + 100}
    asked = {
        "eval": later,
        "split": split,
        "auto": ("hour",),
        "config": ValidateConfig(severity={"leakage": "ignore", "range": "ignore"}),
    }
    assert [a["column"] for a in check(**asked)["anomalies"] if a["kind"] == "drift"] == ["hour"]
    schema = SCHEMA.model_copy(
        update={"columns": (SCHEMA.columns[0].model_copy(update={"meaning": "identifier"}), *SCHEMA.columns[1:])}
    )
    assert [a["column"] for a in check(schema=schema, **asked)["anomalies"] if a["kind"] == "drift"] == []
