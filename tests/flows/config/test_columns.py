"""What decides a row's split, as a pipeline resolves it: frozen once, whatever the config picks."""

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from flows.config.columns import resolve
from flows.config.pipeline import read_pipeline
from headway.errors import ConfigError
from headway.schema.columns import named_for
from headway.sources.spans import files, spans

ROWS = 200
PIPELINE = """
name: small
source: {{format: csv, path: data.csv}}
label: y > 0
{more}
"""


@pytest.fixture
def resolved(tmp_path):
    """resolved("columns: [a]") -> its columns; with freeze=True the schema is written, as after a validation that passed.
    The column `row` is then called so."""

    def run(more="", *, freeze=False, without=(), row=None):
        random = np.random.default_rng(0)
        table = {
            "id": np.arange(ROWS),
            "a": random.integers(0, 9, ROWS),
            "b": random.normal(size=ROWS),
            "c": random.choice(["u", "v"], ROWS),
            "y": random.integers(0, 3, ROWS) - 1,
        }
        columns = {"row" if n == row else n: v for n, v in table.items() if n not in without}
        pacsv.write_csv(pa.table(columns), tmp_path / "data.csv")
        (tmp_path / "pipeline.yaml").write_text(PIPELINE.format(more=more))
        loaded = read_pipeline(tmp_path)
        columns = resolve(loaded, ["all"], partial(files, loaded.pipeline.source))
        return columns.freeze(loaded) if freeze else columns

    return run


def names(columns):
    return [column.name for column in columns.hashed]


@pytest.mark.parametrize(
    "more",
    [
        "",
        "columns: [a]",
        "columns: {a: {type: string}, id: key}",
        'columns: {"*": auto, a: ignore, b: ignore}',
        "columns: {a: weight, c: }",
    ],
)
def test_what_is_hashed_does_not_depend_on_what_the_config_picks(resolved, more):
    columns = resolved(more)
    assert names(columns) == ["a", "b", "c"] and [c.type for c in columns.hashed] == ["int64", "float32", "bytes"]
    assert any("does not depend on 'id', which identifies single rows" in note.text for note in columns.notes)


def test_it_is_frozen_and_a_column_that_the_source_gains_changes_nothing(resolved):
    assert names(resolved("columns: [a, b]", freeze=True, without=("c",))) == ["a", "b"]
    for more in ("columns: [a, b]", "columns: [a]", "columns: auto"):
        assert names(resolved(more)) == ["a", "b"] and not resolved(more).notes
    assert names(resolved("columns: [a]\nsplit: {eval: 0.3}")) == ["a", "b"]


def test_a_label_that_is_made_of_another_column_is_not_hashed_by(resolved, tmp_path):
    assert names(resolved(freeze=True)) == ["a", "b", "c"]
    text = (tmp_path / "pipeline.yaml").read_text().replace("y > 0", "y + a > 2")
    (tmp_path / "pipeline.yaml").write_text(text)
    loaded = read_pipeline(tmp_path)
    assert names(resolve(loaded, ["all"], partial(files, loaded.pipeline.source))) == ["b", "c"]


def test_a_schema_that_does_not_list_them_is_completed_once(resolved, tmp_path):
    resolved("split: {key: a}", freeze=True)
    path = tmp_path / "schema.pbtxt"
    before = path.read_text()
    assert "headway.split" not in before and not resolved("split: {key: a}").completes
    columns = resolved()
    assert columns.completes and "did not list the columns" in columns.notes[-1].text
    assert "drawn anew" in columns.notes[-1].text
    assert path.read_text() == before  # until the window has passed validation
    assert not resolved(freeze=True).completes and path.read_text().startswith(before)
    again = resolved()
    assert names(again) == names(columns) == ["a", "b", "c"] and not again.notes and not again.completes


@pytest.mark.parametrize("more", ["split: {key: a}", "columns: {a: group, b: }", "split: {mode: column, column: c}"])
def test_a_split_with_a_key_or_a_column_hashes_no_others(resolved, more):
    assert resolved(more).hashed == () and resolved(more).schema.split == ()


@pytest.mark.parametrize("task", ["", "task: auto", "task: binary"])
def test_a_ranking_needs_no_task_in_the_pipeline(resolved, task):
    columns = resolved(f"columns: {{'*': auto, id: {{role: group}}}}\ntraining: {{ranking: {{share: 0.5}}}}\n{task}")
    assert named_for(columns.read, "group") == "id"
    with pytest.raises(ConfigError, match="a multiclass task have no order"):
        resolved("columns: {'*': auto, id: {role: group}}\ntraining: {ranking: {share: 0.5}}\ntask: multiclass")


def test_a_misspelled_column_that_is_to_be_ignored_is_refused(resolved):
    assert names(resolved("columns: {'*': auto, c: ignore}")) == ["a", "b", "c"]
    with pytest.raises(ConfigError, match=r"there is no column 'cc'(.|\n)*'c'"):
        resolved("columns: {'*': auto, cc: ignore}")


@pytest.mark.parametrize("frozen", [False, True])
def test_a_column_that_preprocess_gives_has_a_transform_and_no_other_settings(resolved, tmp_path, frozen):
    resolved(freeze=frozen)
    (tmp_path / "own.py").write_text("")
    more = 'preprocess: "own:give"\ncolumns: {"*": auto, given: '
    given = resolved(more + "standardize}")
    assert "given" not in given.schema.names()
    configs = read_pipeline(tmp_path).pipeline.column_configs()
    assert {name: each.transform[0].op for name, each in given.derived(configs).items()} == {"given": "standardize"}
    with pytest.raises(ConfigError, match=r"columns.given.role is for a column of the files, .* no column 'given'"):
        resolved(more + "key}")
    with pytest.raises(ConfigError, match="no column 'given' in the s"):
        resolved('columns: {"*": auto, given: standardize}')


def test_what_preprocess_or_the_ranked_item_reads_is_no_column_that_the_transform_alone_sees(resolved, tmp_path):
    (tmp_path / "own.py").write_text("")

    def chosen(more):
        return resolved(more).auto_features(read_pipeline(tmp_path).pipeline)

    assert chosen("columns: {a: standardize, b: auto, c: auto}") == ("b", "c")
    assert chosen('columns: [a, c]\npreprocess: "own:give"') == ()
    ranked = "columns: {a: auto, c: auto, id: group}\nevaluation: {item: a, ndcg_at: 3}\ntraining: {ranking: {}}"
    assert chosen(ranked) == ("c",)


def test_a_wrong_column_of_the_item_or_of_a_threshold_is_found_before_anything_runs(resolved):
    towers = "columns: {{a: vocabulary, c: vocabulary}}\nmodel: {{name: two_towers, item: [{}]}}"
    assert resolved(towers.format("c"))
    for name, near in (("cc", "'c'"), ("b", "there is: a, c")):
        with pytest.raises(ConfigError, match=rf"pipeline.yaml: model.item: '{name}' is not a feature(.|\n)*{near}"):
            resolved(towers.format(name))
    with pytest.raises(ConfigError, match="there is no column 'd'"):
        resolved("gate: {thresholds: {auc: {slices: {d=u: {min: 0.5}}}}}")
    found = resolved("columns: [a]\ngate: {thresholds: {auc: {slices: {c=u: {min: 0.5}}}}}")
    assert "c" in found.stored and [column.name for column in found.read if column.is_feature] == ["a"]


@pytest.mark.parametrize(
    ("more", "where", "said"),
    [
        ("evaluation: {row_values: [row]}", "evaluation.row_values", "predictions have a column 'row' of their own"),
        ("evaluation: {slices: [row]}", "evaluation.slices", "predictions have a column 'row' of their own"),
        ("columns: {'*': auto, row: group}", "columns", "predictions have a column 'row' of their own"),
        (
            "columns: {'*': auto, id: key}\nevaluation: {row_values: [id]}",
            "evaluation.row_values",
            "the role key, and is not",
        ),
        (
            "columns: {'*': auto, id: time}\nevaluation: {row_values: [id]}",
            "evaluation.row_values",
            "role time, and is not",
        ),
        (
            "columns: {'*': auto, id: key}\ngate: {thresholds: {auc: {slices: {id=1: {min: 0}}}}}",
            "gate.thresholds",
            "id: passthrough",
        ),
    ],
)
def test_a_column_that_predictions_cannot_have_is_refused_at_the_start(resolved, more, where, said):
    with pytest.raises(ConfigError, match=rf"pipeline.yaml: {where}: (.|\n)*{said}"):
        resolved(more, row="a")


def test_a_key_of_the_split_is_stored_where_the_worst_rows_show_it(resolved):
    plain = resolved("split: {key: id}")
    shown = resolved("split: {key: id}\nevaluation: {row_values: [id]}")
    assert "id" not in plain.stored and "id" in shown.stored
    assert "id" not in [column.name for column in shown.read if column.is_feature]


def _months(tmp_path, format, **months):
    for month, rows in months.items():
        (tmp_path / f"{month}.{format}").write_text(rows)
    text = f"name: months\nsource: {{format: {format}, path: '{{span}}.{format}'}}\nlabel: y > 0\n"
    (tmp_path / "pipeline.yaml").write_text(text)
    loaded = read_pipeline(tmp_path)
    return resolve(loaded, spans(loaded.pipeline.source), partial(files, loaded.pipeline.source))


def test_types_are_those_of_all_spans_of_the_window(tmp_path):
    """Integers that become real numbers, a column that is null at first, one that comes later, a first file without rows."""
    columns = _months(
        tmp_path,
        "csv",
        m1="x,y,z\n",
        m2="x,y,z\n" + "".join(f"{i},{i % 2},\n" for i in range(50)),
        m3="x,y,z,new\n" + "".join(f"{i}.5,{i % 2},word,{i}\n" for i in range(50)),
    )
    found = {column.name: (column.type, column.since) for column in columns.schema.columns}
    assert found == {"x": ("float32", None), "y": ("int64", None), "z": ("bytes", None), "new": ("int64", "m3")}
    assert [(column.name, column.type) for column in columns.hashed] == [("x", "float32")]


def test_lists_that_are_empty_at_first_and_a_column_that_goes(tmp_path):
    columns = _months(
        tmp_path,
        "jsonl",
        m1="".join(f'{{"x": {i}, "y": {i % 2}, "l": [], "n": null}}\n' for i in range(50)),
        m2="".join(f'{{"x": {i}, "y": {i % 2}, "l": ["a"], "n": "b"}}\n' for i in range(50)),
    )
    found = {column.name: (column.type, column.shape) for column in columns.schema.columns}
    assert found["l"] == ("bytes", (None,)) and found["n"] == ("bytes", ())


def test_a_word_for_a_missing_value_that_the_frozen_schema_does_not_know_is_refused(tmp_path):
    columns = _months(tmp_path, "csv", m1="x,y,z\n" + "".join(f"{i},{i % 2},NA\n" for i in range(50)))
    columns.freeze(read_pipeline(tmp_path))
    text = (tmp_path / "pipeline.yaml").read_text()
    for words in ('["", NA, "?"]', '[""]'):
        (tmp_path / "pipeline.yaml").write_text(
            text.replace("format: csv", f"format: csv, csv: {{null_values: {words}}}")
        )
        with pytest.raises(ConfigError, match="other words for a missing value"):
            loaded = read_pipeline(tmp_path)
            resolve(loaded, ["m1"], partial(files, loaded.pipeline.source))
