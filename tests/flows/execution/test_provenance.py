"""What is known of the code when a run begins."""

import hashlib
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.config.pipeline import read_pipeline
from flows.execution.provenance import code_of, git_of, newer_headway
from flows.execution.run import run_name
from headway.storage.store import Store

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
    assert modules == {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("nets.py", "towers.py")
    }


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


def test_a_worker_that_was_not_updated_is_told_so(tmp_path, monkeypatch):
    monkeypatch.setattr("headway.storage.manifest.tools", lambda: {"headway": "0.10.0"})
    store = Store(tmp_path)
    store.create()
    began = {"state": "done", "started": "2024-05-01T10:00:00Z"}
    for number, theirs in enumerate(("0.9.9", "0.10.0", "?", None)):
        code = {} if theirs is None else {"tools": {"headway": theirs}}
        store.save_run(began | {"run": f"2024-{number}", "pipeline": "toy", "code": code})
        assert newer_headway(store, "toy") is None
    store.save_run(began | {"run": "2024-5", "pipeline": "toy", "code": {"tools": {"headway": "0.11.0"}}})
    store.save_run(began | {"run": "2024-6", "pipeline": "another", "code": {"tools": {"headway": "0.12.0"}}})
    assert "made by Headway 0.11.0, and this is Headway 0.10.0" in newer_headway(store, "toy")
