"""Every bench starts on little data: what it measures then is of no use, but nothing that it calls has moved."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench"
JOBS = BENCH / "comparison_jobs"
SHORT = {
    "comparison": "--lines",
    "coverage": "--task binary --rows 300 --repetitions 2",
    "judge": "--rows 5000",
    "leaks": "--only iris",
}
"""Their command lines, of those that take less than two processor seconds."""
LONG = {
    "capacity": "--quick --scale 0.02",
    "gate": "--rows 2000 --repetitions 1",
    "graph_functions": "--rounds 1",
    "images": "--sides 28 --scale 0.01 --rounds 1",
    "ingest": "--rows 2000 --tutorial-rows 200 --rounds 1 --large 0",
    "init": "--data breast_cancer",
    "models": "--tables wine --seeds 0 --results {folder}/results.jsonl",
    "pipeline": "--rows 2000 --rounds 1",
    "predict": "--rows 2000 --tutorial-rows 100 --rounds 1",
    "ranking": "--kind logistic --groups 1 --seconds 0 --rounds 1",
    "reader": "--rows 20000 --only vectorised --seconds 0.1 --rounds 1",
    "serve": "--seconds 0.05 --clients 1",
    "stats": "--scale 0.01 --wide-rows 200",
    "storage": "--shards 2 --megabytes 1 --latency 0",
    "train": "--only naive --batch 256 --seconds 0.1 --rounds 1",
    "walks": "--only run",
    "width": "--columns 3",
}
ELSEWHERE = {"branches", "hostile", "mutants", "orchestration", "same"}
"""test_mutants.py starts branches and mutants, tests/test_same.py same, tests/flows/cli/test_serve.py hostile;
orchestration is started here, and needs PostgreSQL."""
PARTS = {"common", "packaged_tables", "same_pipelines", "statlib_tables"}
"""Modules that benches share."""


def started(*arguments):
    """What a bench prints that ends as it should: by itself, or because a figure is not what is required."""
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        cwd=ROOT,
    )
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stdout + done.stderr
    return done.stdout


def test_every_bench_is_started_by_a_test():
    found = {path.stem for path in BENCH.glob("*.py")}
    assert found == {*SHORT, *LONG, *ELSEWHERE, *PARTS}
    assert {path.name for path in JOBS.iterdir() if path.is_file()} == {"headway.yaml", "keras_job.py"}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
def test_a_bench_starts(name):
    assert started(BENCH / f"{name}.py", *SHORT[name].split())


@pytest.mark.long
@pytest.mark.parametrize("name", LONG)
def test_a_bench_starts_processes(name, tmp_path):
    line = LONG[name].format(folder=tmp_path)
    said = started(BENCH / f"{name}.py", *line.split()).splitlines()
    assert said[2].startswith("# python ") and len(said) > 3


@pytest.mark.long
def test_the_bench_of_text_starts():
    assert "jsonl: of pyarrow's rate" in started(BENCH / "ingest.py", "--text", "--rows", "1000", "--rounds", "1")


@pytest.mark.long
def test_the_job_in_keras_promotes_a_model(monthly, tmp_path):
    spans = sorted(path.stem for path in monthly.iterdir())
    assert "promoted version 1" in started(JOBS / "keras_job.py", monthly, *spans, "--store", tmp_path / "store")
    assert (tmp_path / "store" / "champion.json").exists()


@pytest.mark.long
def test_the_job_as_a_pipeline_promotes_a_model(monthly, tmp_path):
    job, data = tmp_path / "bench" / "comparison_jobs" / "headway.yaml", tmp_path / "examples" / "flights" / "data"
    for path in (job, data):
        path.parent.mkdir(parents=True)
    data.symlink_to(monthly)
    job.write_text((JOBS / "headway.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    assert '"promoted"' in started("-m", "flows.cli", "run", job, "--window", "3", "--json")


@pytest.mark.server
def test_the_walk_of_a_deployment_starts():
    assert "to the champion" in started(BENCH / "walks.py", "--only", "deployment")


@pytest.mark.server
def test_the_bench_of_orchestration_starts():
    if not (shutil.which("initdb") or [*Path("/usr/lib/postgresql").glob("*/bin/initdb")]):
        pytest.skip("PostgreSQL is not installed")
    assert "at once" in started(BENCH / "orchestration.py", "--pipelines", "1")
