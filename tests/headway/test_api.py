"""Commands as functions: what is typed, what comes back, what is raised."""

import sys

import pytest

import headway
from headway import api
from headway.errors import ConfigError, HeadwayError


def test_options_are_typed_as_on_the_command_line():
    options = api._typed({"until": "2013-03", "dry_run": True, "json": False, "seed": None, "columns": ["a", "b"]})
    assert options == ["--until", "2013-03", "--dry-run", "--columns", "a", "--columns", "b"]
    assert api._typed({"set": {"a.b": 3, "c": [1, 2], "d": True}}) == [
        "--set",
        "a.b=3",
        "--set",
        "c=[1, 2]",
        "--set",
        "d=true",
    ]


@pytest.fixture
def answers(monkeypatch, tmp_path):
    """answers(code): the command is this Python code."""
    python = sys.executable

    def program(code):
        (tmp_path / "program.py").write_text(code)
        (tmp_path / "python").write_text(f"#!/bin/sh\nexec {python} {tmp_path}/program.py\n")
        (tmp_path / "python").chmod(0o755)
        monkeypatch.setattr(api.sys, "executable", str(tmp_path / "python"))

    return program


def test_an_answer_comes_back_and_lines_go_where_they_should(answers, capsys):
    answers("import sys; print('one', file=sys.stderr); print('{\"state\": \"reject\"}'); sys.exit(4)")
    lines = []
    assert headway.run(progress=lines.append) == {"state": "reject"} and lines == ["one"]
    assert headway.command("runs") == {"state": "reject"} and capsys.readouterr().err == "one\n"


def test_what_goes_wrong_is_raised_as_its_kind(answers):
    error = {"kind": "ConfigError", "problem": "no", "where": "pipeline.yaml", "fix": "yes"}
    answers(f"import json, sys; print(json.dumps({{'error': {error}, 'exit_code': 2}})); sys.exit(2)")
    with pytest.raises(ConfigError) as caught:
        headway.command("plan")
    assert caught.value.facts == error
    answers("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(HeadwayError, match="headway predict ended with exit code -9"):
        headway.command("predict")
