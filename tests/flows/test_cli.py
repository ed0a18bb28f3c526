"""The command line's surface: frozen, so that nobody's script breaks by accident."""

import json
import re

import pytest

from flows.cli import EPILOG, main, parser

COMMANDS = [
    "run",
    "plan",
    "ingest",
    "stats",
    "validate",
    "train",
    "evaluate",
    "gate",
    "export",
    "promote",
    "rollback",
    "predict",
    "models",
    "runs",
    "show",
    "verify",
    "gc",
    "schema",
    "cat",
    "quarantine",
    "export-examples",
    "knobs",
    "debug",
    "doctor",
]
OPTIONS = {
    "run": {"--json", "--set", "--window", "--until", "--seed", "--wait", "--force"},
    "plan": {"--json", "--set", "--window", "--until", "--seed"},
    "promote": {"--json", "--set", "--window", "--until", "--seed", "--wait", "--to", "--reason", "--force"},
    "rollback": {"--json", "--set", "--to", "--reason", "--force"},
    "predict": {
        *("--json", "--set", "--model", "--input", "--output", "--format", "--write", "--columns", "--max-quarantine"),
    },
    "gc": {"--json", "--set", "--keep", "--dry-run"},
    "runs": {"--json", "--set", "--limit"},
    "schema": {"--json", "--set", "--window", "--until", "--seed", "--wait", "--update"},
    "debug": {
        *("--json", "--set", "--window", "--until", "--seed", "--steps", "--out", "--resumed", "--no-profile"),
    },
}


def _subparsers():
    return next(action for action in parser()._actions if action.dest == "command").choices


def test_the_commands_are_these():
    assert list(_subparsers()) == COMMANDS


@pytest.mark.parametrize("command", OPTIONS)
def test_the_options_of_a_command_are_these(command):
    options = {option for action in _subparsers()[command]._actions for option in action.option_strings}
    assert {option for option in options if option.startswith("--")} - {"--help"} == OPTIONS[command]


def test_every_command_answers_in_json():
    for name, command in _subparsers().items():
        assert "--json" in command._option_string_actions, name


def test_exit_codes_are_those_of_the_errors():
    from headway.errors import KINDS

    told = dict(re.findall(r"(\d+) (\S[^;\n(]*)", EPILOG))
    assert {str(kind.exit_code) for kind in KINDS.values()} <= set(told)


def test_a_usage_error_is_two_and_says_what_there_is(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["trian"])
    assert stopped.value.code == 2
    assert "rollback" in capsys.readouterr().err


def test_a_missing_pipeline_is_told_without_a_traceback(tmp_path, capsys):
    assert main(["plan", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "pipeline.yaml" in error and "fix:" in error
    assert main(["plan", str(tmp_path), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["exit_code"] == 2


def test_the_json_schema_is_one_and_knows_every_part(capsys):
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert {"name", "source", "label", "columns", "split", "training", "gate", "store"} <= set(schema["properties"])


@pytest.mark.parametrize(
    "arguments",
    [["gc", "--keep", "-1"], ["runs", "--limit", "-1"], ["quarantine", "--limit", "x"], ["cat", "s", "--rows", "-2"]],
)
def test_a_count_below_zero_is_a_usage_error(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2 and "is no number of 0 or more" in capsys.readouterr().err
