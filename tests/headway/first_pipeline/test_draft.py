"""The decisions of a first pipeline, on small tables that are written for one of them each."""

import datetime
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from headway.errors import ConfigError, DataError
from headway.first_pipeline.draft import read_source
from headway.first_pipeline.found_files import found_source, spans_of
from headway.first_pipeline.label_choice import label_of, likely_label, sole_label
from headway.first_pipeline.look import typed_rows
from headway.first_pipeline.yaml_text import pipeline_text
from headway.tabular.label import LabelConfig
from tests.headway.first_pipeline.conftest import draft_from

R = np.random.default_rng(5)
ROWS = 400


def uses(draft):
    return {choice.column: choice.use for choice in draft.choices}


def why(draft, column):
    return next(choice.why for choice in draft.choices if choice.column == column)


def table(**more):
    x = R.normal(size=ROWS)
    return {"x": x.round(3), "z": R.normal(size=ROWS).round(3), **more, "y": (x + R.normal(size=ROWS) > 0).astype(int)}


def test_a_column_that_cannot_be_read_is_a_note_whatever_the_columns_are_called(tmp_path):
    columns = table()
    columns["nested"] = [[[1], [2]]] * ROWS
    columns["left out"] = [f"{day:02d}/03/2024" for day in R.integers(1, 29, ROWS)]
    pq.write_table(pa.table({name: pa.array(values) for name, values in columns.items()}), tmp_path / "t.parquet")
    notes = draft_from(tmp_path / "t.parquet").notes
    assert [note.partition(":")[0] for note in notes] == ["column 'nested' is left out"]


def test_a_column_that_may_be_meant_in_another_way_is_a_doubt(drafted):
    draft = drafted(table(day=[f"{1 + i % 12:02d}/{1 + i % 11:02d}/2024" for i in range(ROWS)]))
    assert uses(draft)["day"] == "feature" and "say parse: '%m/%d/%Y' or parse: '%d/%m/%Y'" in draft.doubts[0]


def test_columns_that_teach_nothing_are_left_out_with_the_reason(drafted):
    columns = table(id=range(1, ROWS + 1), same=["k"] * ROWS, nothing=[""] * ROWS, kind=list("abcd") * (ROWS // 4))
    columns |= {"copy": columns["x"], "answer": ["yes" if y else "no" for y in columns["y"]]}
    columns["remark"] = [f"x {R.integers(10**9)}" for _ in range(ROWS)]
    draft = drafted(columns)
    assert uses(draft) == {
        "x": "feature", "z": "feature", "kind": "feature", "y": "label", "id": "left out", "same": "left out",
        "copy": "left out", "answer": "left out", "remark": "left out",
    }  # fmt: skip
    assert why(draft, "same") == "constant" and why(draft, "copy") == "repeats column 'x'"
    assert "identifier" in why(draft, "id") and "is it known when" in why(draft, "answer")
    assert any("'nothing' is left out" in doubt for doubt in draft.doubts)
    text = pipeline_text(draft, path="table.csv")
    assert "# left out as they tell nothing of a row: id, same, remark\n" in text  # a run leaves them out by itself
    assert {*yaml.safe_load(text)["columns"]} == {"*", "copy", "answer"}


def test_a_table_of_plain_columns_is_five_lines(drafted):
    text = pipeline_text(drafted(table()), path="table.csv")
    assert [line.split(":")[0] for line in text.splitlines()[1:]] == ["name", "source", "label", "split"]


def test_rows_with_a_time_are_split_by_it(drafted):
    days = [datetime.date(2013, 1, 1) + datetime.timedelta(days=i // 2) for i in range(ROWS)]
    draft = drafted(table(day=[f"{day:%d.%m.%Y}" for day in days], month=[day.month for day in days]))
    assert draft.split.config == {"mode": "column", "column": "day", "eval_from": "2013-05-21"}
    assert draft.columns["day"]["parse"] == "%d.%m.%Y"
    days[0] = ""
    gaps = drafted(table(day=days)).split
    assert gaps.config == {"eval": 0.3} and gaps.text.endswith("; not by day: 1 row has no value")


def test_a_time_that_would_leave_a_class_out_of_eval_does_not_split(drafted):
    days = [datetime.date(2013, 1, 1) + datetime.timedelta(days=i) for i in range(ROWS)]
    draft = drafted(table(day=days) | {"y": [0] * 200 + [1] * 200})
    assert draft.split.config == {"eval": 0.3}


def test_a_day_of_birth_does_not_split(drafted):
    days = [datetime.date(1960, 1, 1) + datetime.timedelta(days=i * 7) for i in range(ROWS)]
    assert drafted(table(birth_date=days)).split.config == {"eval": 0.3}


def test_classes_of_few_rows_are_filtered_or_in_both_splits(drafted):
    draft = drafted(table() | {"y": ["a"] * 380 + ["b"] * 18 + ["c'd"] * 2})
    assert draft.source["where"] == """not (y in ["c'd"])"""
    assert any("2 rows of 1 class" in doubt for doubt in draft.doubts)
    rare = drafted(table() | {"y": ["a"] * 392 + ["b"] * 8})
    assert rare.split.config["eval"] == 0.3


@pytest.mark.parametrize(
    ("values", "kind", "task"),
    [
        ([f"{i % 2}" for i in range(ROWS)], "binary", None),
        (["no", "yes", "", "yes"] * (ROWS // 4), "binary", None),
        ([i % 3 for i in range(ROWS)], "multiclass", None),
        ([f"{i % 3}.0" if i else "" for i in range(ROWS)], "multiclass", "multiclass"),
        ([0, 40, *R.poisson(8.0, ROWS - 2).tolist()], "regression", "count"),
        ((R.normal(size=ROWS) * 100).round(2).tolist(), "regression", None),
        ([100 + i % 19 for i in range(ROWS - 100)] + [100] * 100, "multiclass", None),
    ],
)
def test_the_label_s_values_say_the_task(drafted, values, kind, task):
    draft = drafted(table() | {"y": values})
    assert (draft.facts.kind, draft.facts.task) == (kind, task)


def test_text_becomes_words_or_lists_where_they_come_again(drafted):
    words = ["good", "bad", "film", "plot", "story", "actor", "scene", "music", "end", "start"]
    sentences = [" ".join(R.choice(words, 12)) for _ in range(ROWS)]
    kinds = ["|".join(R.choice(["Comedy", "Drama", "War", "Horror", "Crime", "Music"], 3, False)) for _ in range(ROWS)]
    draft = drafted(table(review=sentences, genres=kinds))
    assert draft.columns["review"]["separator"] == " " and draft.columns["genres"]["separator"] == "|"


def test_names_and_values_that_yaml_or_a_record_cannot_take(drafted):
    columns = {"price / kg": R.normal(size=ROWS), " kind": ["a", "b"] * (ROWS // 2), "label": R.normal(size=ROWS)}
    draft = drafted(table(**columns), delimiter=";")
    assert draft.source["rename"] == {"price / kg": "price_per_kg", " kind": "kind", "label": "label_column"}
    assert draft.source["csv"] == {"delimiter": ";"}
    assert {"price_per_kg", "kind", "label_column"} <= uses(draft).keys()


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (table() | {"y": [1] * ROWS}, "one value only"),
        (table() | {"y": [f"n{i}" for i in range(ROWS)]}, "a name, not a class"),
        ({"x": [i / 7 for i in range(30)], "y": [""] * 30}, "column 'y' has no value in the first 30 rows"),
        ({"y": [0, 1] * 20}, "it has one column, 'y'"),
        ({"id": range(1, 61), "y": [0, 1] * 30}, "no column is left to learn from"),
        ({"x": R.normal(size=12), "y": list("abcd") * 3}, "fewer than two of the 4 classes"),
        ({"x": range(3), "y": [0, 1, 0]}, "3 rows"),
        ({"x": range(30), "y": [1] + [0] * 29}, "1 row of the rarer class"),
    ],
)
def test_a_table_of_which_nothing_can_be_learned_is_refused(drafted, columns, said):
    with pytest.raises(DataError, match=said):
        drafted(columns)


def test_which_column_is_the_label(drafted):
    with pytest.raises(ConfigError, match="there is no column 'q'"):
        drafted(table(), label="q > 15")
    assert sole_label(["a", "Target"]) == "Target"
    assert sole_label(["class", "target"]) is None and sole_label(["a", "b"]) is None
    assert likely_label(["id", "a", "b", "day"]) == "b" and likely_label(["id"]) == "id"
    assert label_of("arr delay", ["arr delay"]).column == "arr delay"
    assert label_of("a > 1", ["a"]).columns() == {"a"}


@pytest.mark.parametrize(
    ("names", "path"),
    [
        (["/2013-01.csv", "/2013-02.csv"], "data/{span}.csv"),
        (["/sales_20130101.csv", "/sales_20130102.csv"], "data/sales_{span}.csv"),
        (["/day=2013-01-01/a.csv", "/day=2013-01-02/b.csv"], "data/day={span}"),
        (["/2013/01/05/x.csv", "/2013/01/06/x.csv"], "data/{year}/{month}/{day}/x.csv"),
        (["/2013/1/x.csv", "/2013/2/x.csv"], "data/{year}/{month}/x.csv"),
        (["/part-0001.csv", "/part-0002.csv"], None),
        (["/a_2013-01.csv", "/b_2013-02.csv"], None),
    ],
)
def test_dates_in_names_are_spans(names, path):
    assert spans_of("data", [f"data{name}" for name in names]) == path


def test_what_is_no_data_is_an_error(tmp_path):
    (tmp_path / "bytes.csv").write_bytes(bytes(range(256)) * 9)
    with pytest.raises(ConfigError, match="neither text nor of a format that is read"):
        found_source(str(tmp_path / "bytes.csv"))
    (tmp_path / "bytes.csv").unlink()
    with pytest.raises(ConfigError, match="no such file"):
        found_source(str(tmp_path / "gone.csv"))
    with pytest.raises(ConfigError, match="it is empty"):
        found_source(str(tmp_path))
    (tmp_path / "a.txt").write_text("x\ty\n1\t2\n")
    with pytest.raises(ConfigError, match=r"no file of a known format; it holds a\.txt"):
        found_source(str(tmp_path))
    (tmp_path / "book.xlsx").write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(ConfigError, match="xlsx files are not read"):
        found_source(str(tmp_path / "book.xlsx"))
    (tmp_path / "fixed.data").write_text("id     carat  cut\n1      0.23   Ideal\n2      0.21   Premium\n")
    with pytest.raises(ConfigError, match="aligned with blanks"):
        found_source(str(tmp_path / "fixed.data"))
    (tmp_path / "none").write_text("")
    with pytest.raises(DataError, match="empty"):
        found_source(str(tmp_path / "none"))


def test_a_name_with_blanks_stands_in_an_expression_as_it_is():
    label = label_of("arr delay (min) > 15 and 'arr delay (min)' == 'x'", ["arr delay (min)", "min"])
    assert label.expression == "col(\"arr delay (min)\") > 15 and 'arr delay (min)' == 'x'"


def test_images_in_folders_and_in_a_column(tmp_path):
    for i in range(40):
        (tmp_path / "images" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        Image.new("L", (12, 8), i).save(tmp_path / "images" / "ab"[i % 2] / f"{i}.png")
    draft = draft_from(tmp_path / "images", "label")
    size = {"height": 8, "width": 12, "channels": 1}
    assert draft.columns == {"image": {"image": size}, "path": "passthrough"} and draft.only
    assert "\nevaluation: {row_values: [path]} " in pipeline_text(draft, path="images")
    pixels = [bytes(R.integers(0, 255, 12 * 12 * 3).astype(np.uint8)) for _ in range(40)]
    pq.write_table(pa.table({"pixels": pixels, "y": [0, 1] * 20}), tmp_path / "pixels.parquet")
    with pytest.raises(DataError, match="neither text nor image files; if they are pixels"):
        draft_from(tmp_path / "pixels.parquet")


def test_the_label_of_images_may_be_an_expression(tmp_path):
    for kind in ("cat", "dog"):
        (tmp_path / kind).mkdir()
        for number in range(30):
            Image.fromarray(R.integers(0, 255, (8, 8, 3), np.uint8)).save(tmp_path / kind / f"{number}.png")
    draft = draft_from(tmp_path, 'label == "cat"')
    assert draft.source["rename"] == {"label": "label_column"} and draft.facts.kind == "binary"
    assert uses(draft) == {"image": "feature", "path": "kept", "label_column": "label"}


def test_spans_are_judged_on_the_last(tmp_path):
    for month in range(1, 9):
        rows = [f"{x:.2f},{int(x > 0)}" for x in R.normal(size=30)]
        (tmp_path / f"sales-2013-{month:02d}.csv").write_text("\n".join(["x,y", *rows]) + "\n")
    draft = draft_from(tmp_path)
    assert draft.source["path"] == f"{tmp_path}/sales-{{span}}.csv" and draft.split.config == {"mode": "time"}
    (tmp_path / "sales-2013-08.csv").write_text(
        "\n".join(["x,y,promo", *(f"{x:.2f},{int(x > 0)},1" for x in R.normal(size=30))])
    )
    assert read_source(found_source(str(tmp_path)))[1].later == ("promo",) and "promo" in uses(draft_from(tmp_path))


def test_folders_called_train_and_test_are_the_split_and_refused_where_the_test_labels_are_kept_back(tmp_path):
    for split, header in (("Train", "x,y"), ("val", "x,y"), ("test", "x,y")):
        (tmp_path / "d" / split).mkdir(parents=True)
        (tmp_path / "d" / split / "a.csv").write_text("\n".join([header, *(f"{i}.5,{i % 2}" for i in range(50))]))
    draft = draft_from(tmp_path / "d")
    assert draft.source["path"] == str(tmp_path / "d" / "{split}") and draft.rows == 150
    values = {"Train": "train", "test": "test", "val": "eval"}
    assert draft.split.config == {"mode": "path", "values": values} and "val is eval" in draft.split.text
    shutil.rmtree(tmp_path / "d" / "val")
    assert draft_from(tmp_path / "d").split.config["values"] == {"Train": "train", "test": "eval"}
    (tmp_path / "d" / "test" / "a.csv").write_text("x\n1.5\n")
    with pytest.raises(DataError, match=r"test/a\.csv: its columns are x, and those of a\.csv are x, y"):
        found_source(str(tmp_path / "d"))


def test_what_is_written_down_after_the_label_is_left_out_and_said(drafted):
    y = R.integers(0, 2, ROWS)
    draft = drafted({"x": R.normal(size=ROWS), "reason": ["ab"[i % 2] if v else "" for i, v in enumerate(y)], "y": y})
    assert uses(draft)["reason"] == "left out" and draft.columns["reason"] == "ignore"
    assert any("reason alone ranks the label" in doubt for doubt in draft.doubts)
    x = R.normal(size=ROWS)
    (doubt,) = (only := drafted({"x": x, "y": (x > 0).astype(int)})).doubts
    assert uses(only)["x"] == "feature" and doubt.startswith("x alone ranks the label")  # nothing else is left


def decimal_comma(values, digits):
    return [f"{value:.{digits}f}".replace(".", ",") for value in values]


def test_numbers_of_one_file_have_one_decimal_sign(drafted, tmp_path):
    thousands = [f"{value:,}".replace(",", ".") for value in R.integers(100, 50_000, ROWS).tolist()]
    draft = drafted(
        {
            "length": decimal_comma(R.normal(60, 9, ROWS), 2),
            "share": decimal_comma(R.random(ROWS), 3),
            "ratio": decimal_comma(1 + 8 * R.random(ROWS), 3),
            "price": thousands,
            "y": R.integers(0, 2, ROWS),
        },
        delimiter=";",
    )
    look = read_source(found_source(str(tmp_path / "table.csv")))[1]
    seen = typed_rows(look, label_of("y", look.names))
    ranges = {name: pc.max(seen.values(name)).as_py() for name in ("length", "share", "ratio", "price")}
    assert 60 < ranges["length"] < 120 and ranges["share"] < 1 and 1 < ranges["ratio"] < 9
    assert seen.values("price").to_pylist() == [int(text.replace(".", "")) for text in thousands]
    assert not draft.doubts


def test_a_comma_before_three_digits_is_a_doubt_where_nothing_in_the_file_tells(drafted):
    columns = {"x": decimal_comma(1 + 8 * R.random(ROWS), 3), "y": R.integers(0, 2, ROWS)}
    (semicolons,) = drafted(columns, delimiter=";").doubts
    assert "if the comma separates thousands, say parse: number" in semicolons
    (commas,) = drafted(columns).doubts
    assert "if the comma is the decimal point, say parse: decimal_comma" in commas


def test_a_time_alone_is_learned_from_in_parts_or_does_not_split(drafted):
    hours = [f"{datetime.datetime(2013, 1, 1) + datetime.timedelta(hours=i)}" for i in range(ROWS)]
    draft = drafted({"time": hours, "y": R.normal(size=ROWS)})
    assert draft.split.config["mode"] == "column" and [c.column for c in draft.choices if c.is_learned] == ["time"]
    months = [f"{2000 + i // 12}-{i % 12 + 1:02d}-01" for i in range(24)]
    alone = drafted({"month": months, "y": R.normal(size=24)})
    assert alone.split.config == {"eval": 0.3} and uses(alone)["month"] == "feature"


def test_the_first_days_of_months_have_no_weekday_to_learn(drafted):
    months = [f"{2000 + i // 48}-{i // 4 % 12 + 1:02d}-01" for i in range(ROWS)]
    assert drafted(table(month=months)).columns["month"]["transform"] == {"date_parts": ["month"]}


def test_numbers_of_hardly_any_row_twice_are_no_classes(drafted):
    y = [37, 9, 6, 4, 3, 2, 2, *[1] * 10]
    draft = drafted({"x": R.normal(size=17), "y": [f"{value}.0" for value in y]})
    assert draft.facts.kind == "regression"


def test_shares_of_rare_classes_are_not_rounded_away(drafted):
    draft = drafted({"x": R.normal(size=2000), "y": [int(i < 6) for i in range(2000)]})
    assert draft.facts.text == "2 classes: 0 99.7%, 1 0.3%"


@pytest.mark.parametrize(
    "text, kind",
    [("2020-12-30 01:25:58.7+01", "timestamp"), ("2020-12-30 01:25+0100", "timestamp"), ("2020-12-30 01", None)],
)
def test_a_time_is_judged_as_it_is_written_in_csv(tmp_path, text, kind):
    (tmp_path / "a.csv").write_text("at,x,y\n" + "".join(f"{text},{i},{i % 2}\n" for i in range(50)))
    seen = typed_rows(read_source(found_source(str(tmp_path / "a.csv")))[1], LabelConfig(column="y"))
    assert seen.rejected == 0 and seen.schema.columns[0].temporal == kind


@pytest.mark.parametrize("city", ["Köln", "Grüße", "Seyðisfjörður", "10 €"])
def test_a_table_that_is_no_utf8_is_read_as_cp1252(tmp_path, city):
    text = f"x,{city},y\n" + "".join(f"{i},{city},{i % 2}\n" for i in range(50))
    (tmp_path / "a.csv").write_bytes(text.encode("cp1252"))
    source, look = read_source(found_source(str(tmp_path / "a.csv")))
    assert source["csv"]["encoding"] == "cp1252" and look.names == ["x", city, "y"]
    (tmp_path / "a.csv").write_bytes(text.encode() + b"51,M\xfcnchen,0\n52,\xef\xbf\xbd,0\n")  # a single value aside
    source, look = read_source(found_source(str(tmp_path / "a.csv")))
    assert "csv" not in source and look.names == ["x", city, "y"]


def test_files_whose_columns_are_known_by_their_places_need_one_header(tmp_path):
    for part, names in enumerate(("x,x,y", "x,y,x")):
        (tmp_path / f"{part}.csv").write_text(names + "\n" + "1,2,3\n" * 9, encoding="utf-8")
    for data in (str(tmp_path), f"{tmp_path}/*.csv", f"{tmp_path}/{{span}}.csv"):
        with pytest.raises(DataError, match=r"line 1, .* is not that of 0\.csv"):
            found_source(data)


def test_files_of_different_columns_are_no_table(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "b.csv").write_text("p,q\n1,2\n")
    for data in (str(tmp_path), f"{tmp_path}/*.csv"):
        with pytest.raises(DataError, match=r"its columns are p, q, and those of a\.csv are x, y"):
            found_source(data)
    (tmp_path / "b.csv").write_text("y,x\n1,2\n")
    assert found_source(str(tmp_path))["path"].endswith("*.csv")


def test_titles_of_files_may_differ_but_not_stand_for_a_row(tmp_path):
    rows = "1,red\n2,blue\n3,red\n" * 9
    (tmp_path / "0.csv").write_text(f"Sales of 2020\n\n{rows}", encoding="utf-8")
    (tmp_path / "1.csv").write_text(f"Sales of 2021, all\n\n{rows}", encoding="utf-8")
    assert found_source(str(tmp_path))["csv"]["skip_lines"] == 2
    (tmp_path / "1.csv").write_text(rows, encoding="utf-8")
    with pytest.raises(DataError, match="line 2"):
        found_source(str(tmp_path))


def test_rows_with_epoch_seconds_are_split_by_time(drafted):
    seconds = [1_700_000_000 + 7200 * i for i in range(ROWS)]
    draft = drafted(table(ts=seconds))
    assert draft.split.config == {"mode": "column", "column": "ts", "eval_from": "2023-12-08"}
    assert draft.columns["ts"]["parse"] == "epoch_seconds"
    assert draft.columns["ts"]["transform"] == {"date_parts": ["weekday", "hour"]}


def test_a_table_of_few_distinct_rows_is_split_by_places_too(drafted):
    random = np.random.default_rng(0)
    kind = random.integers(0, 12, 2000)
    label = random.binomial(1, np.linspace(0.1, 0.9, 12)[kind])
    draft = drafted({"colour": np.array(["red", "green", "blue"])[kind % 3], "size": kind // 3, "y": label})
    assert "and of its place in its file, since few rows are distinct" in draft.split.text and not draft.split.config


def test_rows_that_cannot_be_read_as_the_first_rows_are_are_said(drafted):
    rows = 100_003  # of which the types are inferred from the first 100,000
    draft = drafted({"v": ["0.5", "1.5"] * 50_000 + ["high", "low", "0.5"], "y": [i // 2 % 2 for i in range(rows)]})
    (note,) = draft.notes
    said = "2 of 100,003 rows cannot be read as the first rows are, and will be rejected; 'headway quarant"
    assert note.startswith(said)


def test_one_fact_of_many_columns_is_one_line(drafted):
    words = {
        name: ["k.A." if (i + place) % 9 == 0 else i % 40 for i in range(ROWS)] for place, name in enumerate("pqrst")
    }
    (doubt,) = drafted(table(**words)).doubts
    assert doubt.startswith("columns 'p', 'q', 'r' and 2 more: read as text")
    assert doubt.endswith('say source.csv.null_values: ["", NA, "k.A."]')


def test_quotes_behind_blanks_and_names_that_stand_twice_are_said(tmp_path):
    lines = [f'{i}, "{"ab"[i % 3 % 2]}  b c",{i % 2}' for i in range(60)]
    (tmp_path / "a.csv").write_text("\n".join(["x, x,y", *lines]) + "\n")
    draft = draft_from(tmp_path / "a.csv")
    assert draft.source["csv"]["names"] == ["x", "x_2", "y"]
    assert ["in quotes" in draft.doubts[0], "does not name each column once" in draft.doubts[1]] == [True, True]


def test_rows_without_a_label_are_told(drafted):
    columns = table()
    columns["y"] = ["" if place % 4 else int(value) for place, value in enumerate(columns["y"])]
    assert drafted(columns).notes == ("300 of 400 rows have no label and are left out",)


def test_a_split_by_row_says_why_it_is_not_by_time(drafted):
    days = [f"2020-{1 + place // 28:02d}-{1 + place % 28:02d}" for place in range(300)]
    rows = {
        "day": days,
        "x": R.normal(size=300),
        "y": ["early" if place < 60 and place % 2 else "ab"[place % 2] for place in range(300)],
    }
    split = drafted(rows).split
    assert "mode" not in split.config
    assert split.text.endswith("; not by day: its earlier or its later rows lack a class")


def test_a_field_that_is_text_in_some_rows_and_an_object_in_others_is_left_out_and_rejects_no_row(tmp_path):
    fields = ['"text"', '{"k": 1}', '"words"']
    lines = [f'{{"x": {i * 7 % 13}, "y": {i % 2}, "e": {fields[i % 3]}}}' for i in range(600)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    draft = draft_from(tmp_path / "rows.jsonl")
    assert draft.columns["e"] == "ignore" and "e: ignore" in pipeline_text(draft, path="rows.jsonl")
    assert draft.rows == 600 and "column 'e' is one value and an object" in draft.notes[0]
