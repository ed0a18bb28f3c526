"""How much a run prints: a person reads a first run, and a rejected one, without scrolling."""

import math
import random
import re

import pytest

from flows.pipeline.listeners import Brief, Reporter
from headway.stages.step import Output


def lines_of(done, columns=100):
    """How many lines of a terminal the output takes, but for those that come by the clock: a slow machine has more."""
    said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    said = [line for line in said if not re.match(r"  train: \d+ of \d+ steps", line)]
    return sum(math.ceil(len(line) / columns) for line in said)


@pytest.mark.long
def test_a_first_run_has_20_lines_at_most_and_a_rejected_one_25(typed, tmp_path):
    draw = random.Random(3)
    rows = [(round(draw.uniform(0, 12), 2), draw.choice(["Bonn", "Mainz", "Trier"])) for _ in range(6000)]
    told = [f"{km},{city},{15 + 3 * km + 9 * (city == 'Bonn') + draw.gauss(0, 6):.0f}" for km, city in rows]
    (tmp_path / "deliveries.csv").write_text("\n".join(["distance,city,minutes", *told]))
    typed("init", tmp_path / "deliveries.csv", "--label", "minutes > 35", "--folder", tmp_path, check=0)
    wide = {"COLUMNS": "100"}
    first = typed("run", tmp_path, "--set", "training.steps=100", check=0, env=wide)
    assert lines_of(first) <= 20, first.stderr + first.stdout
    assert str(tmp_path) not in first.stderr + first.stdout, "paths are asked for"
    worse = ("--set", "training.steps=2", "--set", "model.hidden=[4]", "--set", "gate.thresholds.auc.min=0.999")
    rejected = typed("run", tmp_path, *worse, check=4, env=wide)
    assert lines_of(rejected) <= 25, rejected.stderr + rejected.stdout
    assert "since version 1: training.steps 100 -> 2; model.hidden " in rejected.stdout
    assert "gate.thresholds.auc.min not set -> 0.999" in " ".join(rejected.stdout.split())
    checks = rejected.stdout[rejected.stdout.index("  check ") :].splitlines()
    assert re.split("  +", checks[0].strip()) == ["check", "before", "now", "change", "worst allowed", "outcome"]
    assert max(map(len, checks[:4])) <= 100, "beside each other, with the longest words"
    assert checks[1].endswith("beyond the limit") and re.search("  auc +0.*at least 0.999  missed", rejected.stdout)
    everything = typed("show", tmp_path, check=0).stdout
    assert "  training  " in everything and str(tmp_path / "store") in everything


def test_a_step_says_how_far_it_is_every_15_seconds_however_often_it_is_told(capsys, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with Brief() as shown, Reporter([shown]).step("train") as monitor:
        for step in range(460):
            monitor.progress(step, 1000, "steps")
            now[0] += 0.1
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("  train: ")]
    assert 2 <= len(said) <= 4, said


def test_all_spans_are_a_line_and_a_proof_that_holds_is_none(capsys, tmp_path):
    def ingested(span, *, hit):
        counts = {"read": 1000, "written": 990, "filtered": 10, "quarantined": 0}
        return Output(f"ingest {span}", "ingest", "0", tmp_path, {"counts": counts, "span": span}, hit, 0.5)

    with Brief() as shown:
        report = Reporter([shown])
        for month in range(1, 11):
            report.output(ingested(f"2013-{month:02d}", hit=month < 10))
        report.line("compared 3 spans", step="splits")
        report.line("few rows", "warning", "validate")
        report.output(Output("splits", "splits", "0", tmp_path, {"anomalies": [], "says": ["disjoint"]}, False, 0.1))
        report.output(Output("gate", "gate", "0", tmp_path, {"status": "promoted"}, False, 0.1))
    assert capsys.readouterr().err.splitlines() == [
        "  validate: warning: few rows",
        f"  {'ingest':<22} {'0.5 s':>8}  10 spans: 1 new, 9 reused; 9,900 rows, 100 filtered",
        f"  {'gate':<22} {'0.1 s':>8}  promoted",
    ]
    with Brief() as shown:
        Reporter([shown]).output(ingested("2013-01", hit=True))
    assert capsys.readouterr().err == f"  {'ingest 2013-01':<22} {'cached':>8}  990 rows, 10 filtered\n", (
        "one that is alone"
    )
