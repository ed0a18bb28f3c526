"""headway init, as it is typed, and a run of what it wrote."""

import csv
import json

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flows.config.pipeline import Pipeline
from headway.config import load, read_value
from headway.first_pipeline.column_choices import Choice
from headway.first_pipeline.draft import Draft
from headway.first_pipeline.label_choice import LabelFacts
from headway.first_pipeline.split_choice import SplitChoice
from headway.first_pipeline.yaml_text import flow_yaml, pipeline_text
from headway.tabular.label import LabelConfig

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(
    lambda name: "/" not in name and name != "*"
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@given(VALUES)
def test_a_value_on_one_line_of_yaml_means_that_value(value):
    text = flow_yaml(value)
    assert "\n" not in text and yaml.safe_load(f"key: {text}") == {"key": value}


@given(st.lists(NAMES, min_size=2, max_size=6, unique=True), NAMES, st.sampled_from([",", ";", "\t", "|", ":"]))
def test_every_pipeline_that_is_written_is_loaded_as_it_was_meant(names, why, delimiter):
    label, *others = names
    configs = ["ignore", {"shape": "list", "separator": " "}, {"role": ["time", "feature"], "parse": "%d.%m.%Y"}, None]
    choices = [Choice(name, "text", "feature", why, configs[i % 4]) for i, name in enumerate(others)]
    draft = Draft(
        name="t",
        source={"format": "csv", "path": "t.csv", "csv": {"delimiter": delimiter}},
        label=LabelConfig(column=label),
        facts=LabelFacts("multiclass", None, why),
        choices=(Choice(label, "text", "label"), *choices),
        split=SplitChoice(why, {"mode": "column", "column": others[0], "eval_from": "2013-01-01"}),
        rows=10,
        whole=True,
        columns={choice.column: choice.config for choice in choices if choice.config is not None},
    )
    pipeline = load(Pipeline, read_value(pipeline_text(draft, path="t.csv")), where="test")
    assert pipeline.label.column == label and pipeline.split.column == others[0]
    assert pipeline.source.csv.delimiter == delimiter
    assert pipeline.column_configs().keys() == draft.columns.keys()


@pytest.fixture
def data(tmp_path):
    r = np.random.default_rng(0)
    x = r.normal(size=300)
    with (tmp_path / "Größe 1.csv").open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["Unnamed: 0", "Größe (m)", "Tag", "Ort", "wieder"])
        for i, value in enumerate(x):
            day = f"{1 + i % 28:02d}.{1 + i // 28 % 12:02d}.2013"
            late = "ja" if value + r.normal() > 0 else "nein"
            writer.writerow([i, f"{value:.3f}".replace(".", ","), day, "abc"[i % 3], late if i else ""])
    return tmp_path / "Größe 1.csv"


def test_the_data_stand_in_the_file_relative_to_it_wherever_they_lie(typed, data):
    folder = data.parent / "a" / "b" / "c"
    typed("init", data, "--label", "wieder", "--folder", folder, check=0)
    assert yaml.safe_load((folder / "pipeline.yaml").read_text())["source"]["path"] == "../../../Größe 1.csv"
    assert "Größe (m)" in typed("schema", folder, "--columns", check=0).stdout


def test_a_label_that_is_not_known_is_asked_for_and_nothing_is_overwritten(typed, data):
    told = typed("init", data, "--folder", data.parent / "p", check=2).stderr
    assert "which column is to be predicted?" in told and "--label 'wieder'" in told
    (data.parent / "pipeline.yaml").write_text("mine")
    told = typed("init", data, "--label", "wieder", "--folder", data.parent, check=2).stderr
    assert "--force" in told and (data.parent / "pipeline.yaml").read_text() == "mine"


@pytest.mark.parametrize("label", ["ja/nein", "ja/nein == 'ja'"])
def test_a_label_is_named_as_in_the_file_where_the_pipeline_needs_another_name(typed, tmp_path, label):
    (tmp_path / "a.csv").write_text(
        "x,ja/nein\n" + "".join(f"{i / 3},{'ja' if i % 3 else 'nein'}\n" for i in range(60))
    )
    facts = json.loads(
        typed("init", tmp_path / "a.csv", "--label", label, "--folder", tmp_path, "--json", check=0).stdout
    )
    assert "ja_per_nein" in facts["label"] and facts["task"] == "binary"


@pytest.mark.slow
def test_two_commands_bring_a_csv_to_a_promoted_model(typed, data):
    folder = data.parent / "p"
    facts = json.loads(typed("init", data, "--label", "wieder", "--folder", folder, "--json", check=0).stdout)
    assert facts["split"]["column"] == "Tag" and facts["task"] == "binary"
    assert {c["column"]: c["use"] for c in facts["columns"]}["Unnamed: 0"] == "left out"
    done = typed("run", folder, "--json", "--set", "training.steps=50", check=0)
    assert json.loads(done.stdout)["state"] == "promoted"
    (proof,) = folder.glob("store/stages/splits/*/splits.json")
    assert json.loads(proof.read_text())["says"][0].startswith("by Tag: train from 2013-01-02 to ")
