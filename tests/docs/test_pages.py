"""Every block of the documentation is run, loaded or parsed, or says why not; what it shows is what is printed.

The pages share a small copy of examples/flights with two champions in its store; each begins with it as it was. Programs of pages
that write TensorFlow are run by test_snippets.py.
"""

import ast
import contextlib
import io
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from flows.cli.app import application
from flows.cli.usage import commands as names_of_commands
from flows.cli.usage import parameters
from flows.config.pipeline import Pipeline
from headway.config import load, read_value
from headway.errors import ConfigError
from tests.docs.commands import (
    REASONS,
    Shell,
    captured,
    checked,
    commands,
    differs,
    emptied,
    exit_code,
    notes_of,
    skipped,
)
from tests.docs.pages import LINK, PAGES, ROOT, blocks, indented, name
from tests.docs.test_snippets import PAGES as PROGRAMS

LANGUAGES = {"bash", "json", "mermaid", "python", "text", "yaml"}
HISTORY = {"CHANGELOG.md"}
FOLDERS = {
    "docs/tutorial.md": "tutorial",
    "docs/evaluation.md": "examples/flights",
    "docs/gate.md": "examples/flights",
    "docs/graph-functions/runtime-data.md": "examples/flights",
    "docs/registry.md": "examples/flights",
    "docs/report.md": "examples/flights",
    "docs/tuning.md": "examples/flights",
    "docs/predict.md": "examples/flights",
}
"""Where a reader of the page stands; of other pages it is the clone."""
DOCUMENTED = [page for page in PAGES if name(page) not in HISTORY]


def runs_here(block):
    """Whether this file runs a block, or some of its commands."""
    if block.language == "python":
        return block.page not in PROGRAMS and not skipped(block)
    return block.language == "bash" and any(not skipped(block, command) for command in commands(block))


TYPED = sorted(
    (p for p in DOCUMENTED if any(b.language in ("bash", "python") and runs_here(b) for b in blocks(p))),
    key=lambda page: (FOLDERS.get(name(page), ""), page),
)
"""Those of one folder after each other: the TensorFlow process that they share begins anew in another."""


@pytest.fixture(scope="module")
def options_of():
    app = application()
    return {command: {n for a in parameters(app, command) for n in a.names} for command in names_of_commands(app)}


def test_the_index_names_every_page():
    index = ROOT / "docs" / "index.md"
    links = LINK.findall(index.read_text(encoding="utf-8"))
    assert len(links) == len({*links}), "a page stands in it twice"
    named = {(index.parent / link).resolve() for link in links}
    assert not {name(page) for page in PAGES if page not in named | {index}}


@pytest.mark.parametrize("page", DOCUMENTED, ids=name)
def test_a_block_says_its_language_and_why_it_is_not_run(page, options_of):
    fences = re.findall(r"^ *```", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(fences) == 2 * len(blocks(page)), "a fence is left open"
    assert not indented(page), "say the language of a block: ```bash, not four spaces"
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{block.place}: say the block's language, one of {sorted(LANGUAGES)}"
        for reason, _ in notes_of(block):
            assert reason in REASONS, f"{block.place}: {reason!r} is not one of {sorted(REASONS)}"
        if block.language == "bash":
            for command in commands(block):
                assert not (wrong := checked(command, options_of)), f"{block.place}: {command}: {wrong}"
        if block.language == "python":
            ast.parse(block.code)
        if block.language == "json":
            json.loads(block.code)


def test_most_of_what_the_pages_show_is_run():
    """Counts what is not, by reason."""
    shown, left_out = 0, {}
    for page in DOCUMENTED:
        for block in blocks(page):
            for command in commands(block) if block.language == "bash" else [None] * (block.language == "python"):
                shown += 1
                if reason := skipped(block, command):
                    left_out.setdefault(reason, []).append(f"{block.place}: {command or 'a program'}")
    counts = {reason: len(places) for reason, places in left_out.items()}
    print(f"{shown} commands and programs; not run: {counts}")
    assert set(left_out) == set(REASONS), "a reason that no page gives"
    assert sum(counts.values()) < 0.45 * shown, counts


@pytest.mark.parametrize("page", [p for p in DOCUMENTED if any(b.language == "yaml" for b in blocks(p))], ids=name)
def test_yaml_of_a_page_is_what_a_pipeline_takes(page):
    before = {}
    for block in blocks(page):
        if block.language == "yaml" and not skipped(block):
            for part in alternatives(block.code):
                before |= accepted(part, before, block)


SMALLEST = {"name": "page", "source": {"format": "parquet", "path": "data/{span}.parquet"}, "label": "arr_delay > 15"}


def alternatives(code):
    """The parts of a block: the whole, or, where it shows several ways to write a key, each of them."""
    try:
        return [read_value(code)]
    except ConfigError:
        lines = code.splitlines(keepends=True)
        starts = [i for i, line in enumerate(lines) if line[0] not in " #\n-"]
        return [read_value("".join(lines[a:b])) for a, b in zip(starts, [*starts[1:], None], strict=True)]


def accepted(part, before, block):
    """The part, if a smallest pipeline takes it alone, or with what the page has shown before."""
    assert isinstance(part, dict), f"{block.place}: not a mapping: {part!r}"
    part = {key: {**SMALLEST["source"], **value} if key == "source" else value for key, value in part.items()}
    try:
        load(Pipeline, SMALLEST | part, where=block.place)
    except ConfigError:
        load(Pipeline, SMALLEST | before | part, where=block.place)
    return part


@pytest.fixture(scope="module")
def base(flights, made_once):
    """examples/flights, small, with a store that has two champions; and ~/churn, the same with other months."""

    def make(folder):
        example = folder / "clone" / "examples" / "flights"
        left_out = shutil.ignore_patterns("data", "store", "generated")
        shutil.copytree(ROOT / "examples", folder / "clone" / "examples", ignore=left_out)
        config = yaml.safe_load((example / "pipeline.yaml").read_text())
        config["training"] = {"steps": 60, "batch_size": 128, "learning_rate": 0.01}
        config["gate"] = {
            "thresholds": {"auc": {"min": 0.5}},
            "tolerance": {"auc": 0.5, "loss": 0.5},
            "slice_min_rows": 50,
        }
        config["evaluation"]["slice_min_rows"] = 50
        config |= {"tune": {"trials": 2}}
        (example / "pipeline.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        churn = folder / "home" / "churn"
        for target, year in ((example, 2013), (churn, 2024)):
            (target / "data").mkdir(parents=True)
            for month in range(1, 13):
                rows = flights.filter(pc.equal(flights["month"], month)).slice(0, 20_000)
                rows = rows.take(list(range(0, rows.num_rows, 20 if year == 2013 else 60)))
                pq.write_table(rows, target / "data" / f"{year}-{month:02d}.parquet")
        csv.write_csv(rows.slice(0, 100), example / "new.csv")
        (churn / "pipeline.yaml").write_text(yaml.safe_dump(config | {"name": "churn"}, sort_keys=False))

    return made_once("docs", make)


@pytest.fixture(scope="module")
def champions(base, made_once, typed_once):
    """The same, with a store that has two champions: of the months up to August, and of those up to September."""

    def make(folder):
        shutil.copytree(base, folder, dirs_exist_ok=True)
        with contextlib.chdir(folder / "clone"):
            for window, until in ((8, "2013-08"), (9, "2013-09")):
                typed_once("run", "examples/flights", "--window", window, "--until", until, check=0)

    return made_once("docs-champions", make)


@pytest.fixture
def shell(champions, tmp_path_factory, typed, fork_server, monkeypatch, request):
    """The shell of a page."""
    world = tmp_path_factory.getbasetemp() / "docs-world"
    folder = world / "clone" / FOLDERS.get(name(request.param), "")
    folder.mkdir(parents=True, exist_ok=True)
    source = champions
    emptied(folder)
    if (source / folder.relative_to(world)).exists():
        shutil.copytree(source / folder.relative_to(world), folder, dirs_exist_ok=True)
    shutil.rmtree(world / "home", ignore_errors=True)
    shutil.copytree(source / "home", world / "home")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(world / "home"))
    monkeypatch.setenv("COLUMNS", "130")
    one = Shell(typed, fork_server.start, world / "home", monkeypatch.setenv)
    yield one
    one.close()


@pytest.mark.long
@pytest.mark.timeout(900)  # the first one makes the champions
@pytest.mark.parametrize(("shell", "page"), [(p, p) for p in TYPED], ids=[name(p) for p in TYPED], indirect=["shell"])
def test_the_commands_of_a_page_work_and_print_what_it_shows(page, shell):
    namespace, printed, wrong = {"__name__": "page"}, None, []
    for block in blocks(page):
        if block.language == "text":
            if block.follows and printed is not None and (line := differs(block.code, printed)):
                wrong.append(f"{block.place}: this is not printed:\n  {line}\nwhat is:\n{printed[-6000:]}")
            continue
        printed = None
        if file := block.notes.get("files"):
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).write_text(block.code, encoding="utf-8")
        elif block.language == "bash":
            for command in commands(block):
                if skipped(block, command):
                    continue
                done = shell.run(command)
                printed = (printed or "") + done.stdout
                if done.returncode != exit_code(block, command):
                    said = f"{done.stdout[-1500:]}{done.stderr[-1500:]}"
                    wrong.append(f"{block.place}: {command}\n  exit {done.returncode}\n{said}")
        elif block.language == "python" and runs_here(block):
            with captured() as out:
                exec(compile(block.code, block.place, "exec"), namespace)
            printed = out.getvalue()
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.browser
@pytest.mark.timeout(900)  # two runs of the demo
def test_the_picture_of_a_report_shows_what_a_report_looks_like_now(flights, typed, visit, tmp_path):
    """HEADWAY_RENEW_GOLDEN=1 takes it anew."""
    (tmp_path / "data").mkdir()
    for file in ("pipeline.yaml", "schema.pbtxt"):
        shutil.copy(ROOT / "examples" / "flights" / file, tmp_path)
    for month in range(1, 11):
        pq.write_table(flights.filter(pc.equal(flights["month"], month)), tmp_path / f"data/2013-{month:02d}.parquet")
    for window in (9, 10):
        typed("run", tmp_path, "--window", window, "--until", f"2013-{window:02d}", check=0)
    page = visit(max((tmp_path / "store" / "runs").glob("*.html")), width=1200, height=1150)
    taken, kept = io.BytesIO(page.screenshot()), ROOT / "docs" / "images" / "report.png"
    if os.environ.get("HEADWAY_RENEW_GOLDEN"):
        Image.open(taken).convert("RGB").quantize(256).save(kept, optimize=True)
    # numbers, times and fonts differ; where boxes, tables and figures stand does not
    now, before = (Image.open(file).convert("L") for file in (taken, kept))
    assert now.size == before.size
    seen = [np.asarray(picture.resize((40, 38), Image.Resampling.BOX), float) for picture in (now, before)]
    assert np.abs(seen[0] - seen[1]).mean() < 4 and not page.problems
