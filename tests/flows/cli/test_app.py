"""The command line's surface: frozen, so that nobody's script breaks by accident."""

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flows.cli.app import EPILOG, application, main, surely_trains
from flows.cli.usage import commands, page, parameters
from tfcore.runtime.tensorflow_process import Child

GOLDEN = Path(__file__).parent / "golden" / "command_line.json"


def test_golden_the_commands_and_their_options_are_these():
    """A change of the surface is seen as a change of the golden file."""
    app = application()
    found = {
        name: {a.name: {True: "flag", False: str(a.field_info.default)}[a.hint is bool] for a in parameters(app, name)}
        for name in commands(app)
    }
    found = {name: {a: "required" if "inspect" in d else d for a, d in one.items()} for name, one in found.items()}
    if os.environ.get("HEADWAY_RENEW_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    assert found == json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert all("--json" in options for options in found.values())


def test_all_commands_fit_on_one_screen_and_have_at_most_160_options(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    app = application()
    names = commands(app)
    told = [line for line in page(app).partition("\nOptions:")[0].splitlines() if line.startswith("  ")]
    assert len(told) == len(names) <= 25, "one line each"
    options = [a for name in names for a in parameters(app, name) if a.name.startswith("--")]
    assert len(options) <= 160


@pytest.mark.parametrize("command", commands(application()))
def test_what_a_command_and_its_options_do_is_said_in_sentences(command):
    app = application()
    texts = [str(app._get_item(command).help), *(str(a.parameter.help) for a in parameters(app, command))]
    assert not [text for text in texts if not re.fullmatch(r"[A-Z][a-z]*s .+\.", text, re.DOTALL)]


@pytest.mark.parametrize("command", ["", *commands(application())])
def test_help_fits_eighty_columns_and_is_plain(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = page(application(), command)
    assert max(map(len, text.splitlines())) <= 80 and "\x1b" not in text
    assert not any(word in text for word in ("None", "()", "Parameter", "(default: )"))


def test_help_answers_within_half_a_second_of_processor_time():
    code = "import sys, time; from flows.cli.app import main; main(['--help']); print(time.process_time(), file=sys.stderr)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]
    assert min(float(run.stderr) for run in runs) < 0.5


def test_exit_codes_are_those_of_the_errors():
    from headway.errors import KINDS

    told = dict(re.findall(r"(\d+) (\S[^;\n(]*)", EPILOG))
    assert {"0", "1", *(str(kind.exit_code) for kind in KINDS.values())} == set(told)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["promot"], 'Unknown command "promot". Did you mean "promote"?'),
        (["run", "--log-format", "xml"], '"xml" for --log-format. Choose from: "text", "json"'),
        (["run", "--to", "train", "--force"], "--force: --to promotes nothing"),
        (["--jsn"], 'Unknown command "--jsn"'),
        (["bogus", "--help"], 'Unknown command "bogus"'),
        (["--json", "runs"], "options come after the command, as in headway runs --json"),
        (["run", "--windw", "9"], "Unknown option: --windw. Did you mean --window?"),
        (["run", "a", "b"], "One argument too many: 'b'"),
        (["run", "--window"], "--window requires an argument"),
        (["export-rows", "--output"], "--output requires an argument"),
        (["export-rows"], "--output FILE is needed"),
        (["init"], "DATA is needed"),
        (["run", "--seed", "1.5"], "--seed: '1.5' is not a whole number"),
        (["run", "--seed", "1", "--seed", "2"], "--seed specified multiple times"),
        (["run", "--wait", "x"], '--wait: unable to convert "x" into float'),
        (["run", "--set", "x"], "--set: 'x' is not KEY=VALUE"),
        (["predict", "--output", "x"], "--input is needed, or --spans"),
        (["predict", "--spans", "--input", "x"], "--input: --spans takes its files from the pipeline"),
        (["predict", "--input", "x", "--output", "y", "--since", "1"], "--since: it goes with --spans"),
        (
            ["export-rows", "--output", "x", "--split", "trian"],
            '"trian" for --split. Choose from: "train", "eval", "test". Did you mean "train"?',
        ),
        (["clean", "--keep", "-1"], "'-1' is not a whole number of 0 or more"),
        (["runs", "--limit", "-1"], "'-1' is not a whole number of 0 or more"),
        (["quarantine", "--limit", "x"], "'x' is not a whole number of 0 or more"),
    ],
)
def test_a_usage_error_is_two_and_a_plain_sentence(arguments, words, capsys):
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert words in said.err and "fix:" in said.err and "Traceback" not in said.err
    assert not said.out or json.loads(said.out)["exit_code"] == 2


def test_without_a_command_the_help_is_reported_as_an_error(capsys):
    assert main([]) == 2
    assert "rollback" in capsys.readouterr().err
    assert main(["run", "--help"]) == 0
    assert "--until" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        [".", "--window", "9", "--until", "2013-09", "--set", "a=-1", "--set", "b=[1, 2]", "--seed", "-3", "--json"],
        ["--window", "9", "--set", "a=-1", ".", "--json", "--until=2013-09", "--seed=-3", "--set=b=[1, 2]"],
    ],
)
def test_options_come_before_or_after_the_pipeline(arguments, monkeypatch):
    from flows.cli import options as shared

    seen = []
    monkeypatch.setattr(shared, "load_pipeline", lambda pipeline, options: seen.append((pipeline, options)))
    with pytest.raises(AttributeError):
        main(["plan", *arguments])
    ((pipeline, options),) = seen
    assert (pipeline, options.window, options.until, options.seed) == (".", 9, "2013-09", -3)
    assert shared.overrides_of(options) == {"a": -1, "b": [1, 2]} and options.json


MISSING = {
    ("run", "--to", "validate", "--set", "validation.serving=gone.jsonl"): (
        "pipeline.yaml: validation.serving: ",
        "leave the key out",
    ),
    ("run", "--set", "@gone.yaml"): ("--set @gone.yaml: there is no file gone.yaml", "--set KEY=VALUE"),
    ("run", "gone.yaml"): ("gone.yaml: no such file", "headway init DATA"),
    ("predict", "--input", "gone.csv", "--output", "out", "--model", "saved"): ("--input: no file", "check the path"),
    ("predict", "--input", "d.csv", "--output", "out", "--model", "gone"): (
        "'gone' is neither",
        "folder of a SavedModel",
    ),
    ("init", "gone.csv", "--folder", "new"): ("gone.csv: there is no such file or folder", "check the path"),
    ("run", "--set", "source.path=gone.csv"): ("no file matches", "check the path"),
    ("run", "--set", "model.name=gone:net"): ("gone.py, which does not exist", "put the module beside"),
}


@pytest.mark.parametrize("arguments", MISSING, ids=" ".join)
def test_a_missing_file_is_named_with_the_fix(arguments, tmp_path, monkeypatch, capsys):
    text = "name: p\nsource: {format: csv, path: d.csv}\nlabel: y\ncolumns: {'*': auto, id: {role: key}}\n"
    (tmp_path / "pipeline.yaml").write_text(text)
    (tmp_path / "d.csv").write_text("id,x,y\n" + "".join(f"{i},{i % 7},{i % 2}\n" for i in range(200)))
    (tmp_path / "saved").mkdir()
    monkeypatch.setattr("flows.pipeline.predict.describe_model", lambda folder: None)  # the input is looked at before
    monkeypatch.chdir(tmp_path)
    code, told = main(list(arguments)), capsys.readouterr().err
    problem, fix = MISSING[arguments]
    assert code in (2, 3) and problem in told and "fix: " in told and fix in told and "Traceback" not in told


def test_the_json_schema_is_one_and_knows_every_part(capsys):
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert {"name", "source", "label", "columns", "split", "training", "gate", "store"} <= set(schema["properties"])


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_full_or_forbidden_disk_has_no_traceback(number, tmp_path, monkeypatch, capsys):
    import flows.cli.runs

    def fails(*_, **__):
        raise OSError(number, os.strerror(number), str(tmp_path / "x"))

    monkeypatch.setattr(flows.cli.runs, "store_of", fails)
    assert main(["runs", str(tmp_path)]) == 5
    said = capsys.readouterr().err
    assert f"{tmp_path}/x: {os.strerror(number).lower()}" in said and "fix:" in said


SMALL = "name: small\nsource: {format: csv, path: d.csv}\nlabel: y\n"


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("source.format=xlsx", "'xlsx' is not read: convert it to parquet"),
        ("source.format=tsv", r'csv: {delimiter: "\t"}'),
        ("schema=../../x", "should be a file in the pipeline's folder"),
        ("schema=/etc/x", "should be a file in the pipeline's folder"),
        ("label=y = 1", "write '==' in place of '='"),
    ],
)
def test_a_wrong_value_is_reported_with_the_way_out(override, words, tmp_path, capsys):
    (tmp_path / "pipeline.yaml").write_text(SMALL)
    assert main(["plan", str(tmp_path), "--set", override]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system in which no folder can be made")
def test_a_store_that_cannot_be_made_is_reported():
    from headway.errors import StoreError
    from headway.storage.store import Store

    with pytest.raises(StoreError, match="this folder cannot be made"):
        Store(Path("/proc/headway")).create()


@pytest.mark.parametrize(
    ("tokens", "text", "made", "trains"),
    [
        (["run"], "label: y", "", True),
        (["run", "."], "label: y  # in a store", "store/runs", True),
        (["run", "pipeline.yaml", "--to", "train", "--window", "3"], "label: y", "", True),
        (["run"], "label: y", "store/stages/ingest", False),
        (["run"], "label: y\nstore: elsewhere", "", False),
        (["run", "--set", "store=elsewhere"], "label: y", "", False),
        (["run", "--set", "@more.yaml"], "label: y", "", False),
        (["run", ".", "other"], "label: y", "other", False),
        (["run", "other"], "label: y", "other", False),
        (["run", "--help"], "label: y", "", False),
        (["plan"], "label: y", "", False),
        (["run", "--to", "ingest"], "label: y", "", False),
        (["run", "--to=ingest"], "label: y", "", False),
        (["--json", "run"], "label: y", "", False),
        ([], "label: y", "", False),
    ],
)
def test_tensorflow_starts_at_once_only_for_a_command_that_trains_as_can_be_seen(
    tokens, text, made, trains, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipeline.yaml").write_text(text)
    (tmp_path / made).mkdir(parents=True, exist_ok=True)
    assert surely_trains(tokens) is trains


def test_a_command_that_fails_ends_the_tensorflow_it_began_and_says_nothing_of_it(tmp_path):
    (tmp_path / "pipeline.yaml").write_text("name: toy\nlable: y\n")
    code = (
        "import os, sys\n"
        "from flows.cli.app import main\n"
        "from tfcore.runtime import early_start\n"
        "begun, start = [], early_start.start\n"
        "early_start.start = lambda arguments: begun.append(start(arguments)) or begun[0]\n"
        "code = main()\n"
        "process, scratch = begun[0]\n"
        "print(code, process.returncode, os.path.exists(scratch.name))\n"
    )
    command = [sys.executable, "-P", "-c", code, "run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == ["2", "-9", "False"], done
    assert done.stderr.startswith("headway run: ") and "lable" in done.stderr and "ensor" not in done.stderr


@pytest.mark.parametrize(("options", "begins"), [([], ["Beam", "TensorFlow"]), (["--to", "ingest"], ["Beam"])])
def test_a_first_run_imports_what_it_will_need_while_it_looks_at_the_data(options, begins, tmp_path, monkeypatch):
    (tmp_path / "d.csv").write_text("x,y\n1,0\n2,1\n")
    (tmp_path / "pipeline.yaml").write_text(SMALL.replace("label: y", "label: z"))
    begun = []
    monkeypatch.setattr("flows.pipeline.run.begin_import", lambda: begun.append("Beam"))
    monkeypatch.setattr(Child, "spawn", lambda child: begun.append("TensorFlow"))
    assert main(["run", str(tmp_path), *options]) == 2, "there is no column z"
    assert begun == begins
