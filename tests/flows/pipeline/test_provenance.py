"""What is known of the code when a run begins."""

import hashlib
import subprocess

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flows.config.pipeline import read_pipeline
from flows.pipeline.context import Context
from flows.pipeline.provenance import changes_since, code_of, git_of
from flows.pipeline.run import run_name
from flows.records import ResolvedSettings, RunRecord

PIPELINE = "name: toy\nsource: {format: csv, path: data.csv}\nlabel: y\nmodel: {name: 'nets:build'}\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "nets.py").write_text("import towers\n")
    (tmp_path / "towers.py").write_text("HEIGHT = 3\n")
    (tmp_path / "other.py").write_text("")
    return tmp_path


def git(folder, *arguments):
    names = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", str(folder), *names, *arguments], check=True, capture_output=True)


def test_the_users_modules_and_what_they_import_are_known_by_their_digests(folder):
    modules = code_of(read_pipeline(folder)).modules
    wanted = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("nets.py", "towers.py")}
    assert modules == wanted


def test_a_module_of_a_loss_a_metric_or_a_task_is_one_of_the_users_modules(folder):
    config = yaml.safe_load(PIPELINE) | {"task": "tasks:mine", "evaluation": {"metrics": {"judge:cost": "lower"}}}
    config |= {"training": {"loss": "losses:mine"}, "preprocess": "features:more"}
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(config))
    for name in ("tasks", "judge", "losses", "features"):
        (folder / f"{name}.py").write_text("")
    found = set(code_of(read_pipeline(folder)).modules)
    assert found == {"nets.py", "towers.py", "tasks.py", "judge.py", "losses.py", "features.py"}


def test_the_commit_is_known_with_the_files_that_differ_from_it(folder):
    assert git_of(folder) is None, "no repository"
    git(folder, "init", "-b", "work")
    assert git_of(folder) is None, "no commit yet"
    git(folder, "add", ".")
    git(folder, "commit", "-m", "first")
    found = git_of(folder)
    assert len(found.commit) == 40 and (found.branch, found.changed) == ("work", ())
    (folder / "towers.py").write_text("HEIGHT = 4\n")
    (folder / "new.py").write_text("")
    assert git_of(folder).changed == ("towers.py",)


def test_without_git_there_is_no_commit(folder, monkeypatch):
    git(folder, "init")
    monkeypatch.setenv("PATH", "")
    assert git_of(folder) is None and code_of(read_pipeline(folder)).git is None


@given(a=st.floats(1e9, 4e9), b=st.floats(1e9, 4e9))
def test_names_of_runs_sort_by_when_they_began(a, b):
    assert (run_name(a) <= run_name(b)) or a > b


MONTHS = """
name: toy
source: {format: csv, path: "data/{span}.csv"}
label: y
split: {eval: 0.3}
evaluation: {metrics: {"judge:cost": lower}}
"""


class _Toy:
    """A folder with runs, the first of which made version 1."""

    def __init__(self, folder, keys, chosen):
        (folder / "data").mkdir(parents=True)
        (folder / "saved").mkdir()
        (folder / "saved" / "saved_model.pb").write_bytes(b"model")
        (folder / "pipeline.yaml").write_text(MONTHS)
        (folder / "judge.py").write_text("def cost(label, prediction): ...\n")
        (folder / "schema.pbtxt").write_text("feature {}\n")
        for span in ("2024-01", "2024-02"):
            (folder / "data" / f"{span}.csv").write_text("x,y\n1,0\n")
        self.folder, self.chosen, self.rows = folder, chosen, 100
        spec, record = self._run("r1", keys)
        spec.store.create()
        record.save(spec.store)
        digest = hashlib.sha256((folder / "schema.pbtxt").read_bytes()).hexdigest()
        spans = [{"span": s, "files": [f.model_dump(mode="json") for f in spec.files(s)]} for s in spec.spans]
        lineage = {"format": 1, "spans": spans, "schema": {"file": "schema.pbtxt", "sha256": digest}}
        spec.registry.publish(folder / "saved", {"run": "r1"}, lineage)

    def _run(self, name, keys, seed=None):
        loaded = read_pipeline(self.folder, keys)
        spec = Context(loaded, loaded.open_store(), seed=seed)
        config = loaded.pipeline.model_dump(mode="json", exclude_unset=True)
        known = {"code": code_of(loaded), "config": config, "seed": spec.chosen_seed, "spans": tuple(spec.spans)}
        known |= {"training": self.chosen and ResolvedSettings(rows=self.rows, says="", **self.chosen)}
        return spec, RunRecord(run=name, pipeline="toy", state="done", started="", **known)

    def since(self, seed=None, **keys):
        """What is different in a run of the folder as it is now, with these keys set."""
        spec, record = self._run("r2", {key.replace("__", "."): value for key, value in keys.items()}, seed)
        return list(changes_since(spec, 1, record))


@pytest.fixture
def first(tmp_path):
    """first({"training.steps": 30}, chosen={...}) -> a folder whose version 1 was made with these settings."""
    return lambda keys=None, chosen=None: _Toy(tmp_path / "toy", keys, chosen)


CODE = ("code", None, "as before")


def test_a_changed_setting_of_the_ingest_is_no_changed_file(first):
    toy = first()
    assert toy.since() == [("settings and code", None, "as before")]
    assert toy.since(split__eval=0.35) == [("split.eval", 0.3, 0.35), CODE]
    (toy.folder / "data" / "2024-02.csv").write_text("x,y\n2,0\n")
    assert toy.since() == [("raw files of 2024-02", None, "changed"), ("settings and code", None, "as before")]


def test_an_edited_module_of_a_metric_and_an_edited_schema_are_named(first):
    toy = first()
    (toy.folder / "judge.py").write_text("def cost(label, prediction): return 0.0\n")
    (toy.folder / "schema.pbtxt").write_text("feature { name: 'x' }\n")
    wanted = [("schema.pbtxt", None, "changed"), ("judge.py", None, "changed"), ("settings", None, "as before")]
    assert toy.since() == wanted


def test_what_a_setting_was_before_it_was_given_is_what_was_chosen(first):
    rate = {"name": "cosine", "settings": {"initial": 0.002}}
    training = {"steps": 1000, "batch_size": 32, "learning_rate": rate}
    toy = first(chosen={"training": training, "model": {"hidden": [32, 16]}})
    found = toy.since(training__steps=30, training__batch_size=256, training__learning_rate=0.01, model__hidden=[4])
    assert sorted(found) == [
        CODE,
        ("model.hidden", "auto (32, 16)", [4]),
        ("training.batch_size", "auto (32)", 256),
        ("training.learning_rate", "auto ({name: cosine, settings: {initial: 0.002}})", 0.01),
        ("training.steps", "auto (1,000)", 30),
    ]


def test_what_auto_chooses_otherwise_is_no_changed_setting_and_told_with_its_cause(first):
    """Other rows, else other settings, else another Headway. One that has the usual value is no change."""
    toy = first(chosen={"training": {"steps": 1000, "batch_size": 32}, "model": {"dropout": 0.01}})
    toy.chosen = {
        "training": {"steps": 1000, "batch_size": 32, "jit": "auto"},
        "model": {"dropout": 0.02, "images": "resnet"},
    }
    both, same = "model.dropout 0.01 -> 0.02, model.images conv -> resnet", ("settings and code", None, "as before")
    assert toy.since() == [("chosen by auto:", None, both), same]
    net = ("chosen by auto for these settings:", None, "model.images conv -> resnet")
    assert toy.since(model__dropout=0.03) == [("model.dropout", "auto (0.01)", 0.03), net, CODE]
    toy.rows = 200
    chosen = ("chosen by auto for more rows:", None, both)
    assert toy.since() == [("train rows", 100, 200), chosen, same]
    toy.chosen["training"]["early_stopping"] = {"patience": 10}
    assert "training.early_stopping.patience none -> 10" in {what: now for what, _, now in toy.since()}[chosen[0]]


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ({"seed": 3}, [("seed", 0, 3), CODE]),
        # one that was left out was auto where the choice is not recorded
        ({"training__steps": 30}, [("training.steps", "auto", 30), CODE]),
        # as they were anyway
        ({"seed": 0, "gate__confidence": 0.95}, [("settings and code", None, "as before")]),
    ],
)
def test_a_setting_is_named_where_it_is_another(first, keys, found):
    assert first().since(**keys) == found


def test_nested_settings_are_told_leaf_by_leaf_and_as_pipeline_yaml_has_them(first):
    toy = first({"columns": {"x": [{"clip": {"min": 0, "max": None}}]}})
    found = toy.since(gate__hold=True, gate__thresholds={"auc": {"min": 0.9}}, columns={"x": [{"clip": {"max": 3}}]})
    assert sorted(found) == [
        CODE,
        ("columns.x.transform", "[{op: clip, min: 0.0}]", "[{op: clip, max: 3.0}]"),
        ("gate.hold", "false", "true"),
        ("gate.thresholds.auc.min", "not set", 0.9),
    ]
