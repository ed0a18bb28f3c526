"""Which runner a pipeline gets, and that Beam stays out of the way until then."""

import subprocess
import sys

import pytest

from beam_jobs.runners import config
from beam_jobs.runners.config import RunnerConfig, make_pipeline
from headway.config import load
from headway.errors import ConfigError
from headway.process import cores

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("direct", "direct"),
        ("FnApiRunner", "direct"),
        ("DirectRunner", "direct"),
        ("FlinkRunner", "flink"),
        ("spark", "spark"),
    ],
)
def test_runners_go_by_short_names_and_by_beams_own(said, meant):
    assert RunnerConfig.model_validate(said).name == meant
    assert RunnerConfig(name=said).name == meant


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"name": "flnk"}, "did you mean 'flink'"),
        ({"name": "quantum"}, "there is: direct"),
        ({"name": "flink", "workers": 3}, "workers are threads of the direct runner"),
        ({"workers": 0}, "greater than or equal to 1"),
        ({"options": {"direct_num_workers": 1}}, "set runner.workers"),
        ({"options": {"direct_running_mode": "fast"}}, "there is: in_memory, multi_threading"),
        ({"options": {"direct_running_mode": "multi_processing"}}, "loses elements"),
    ],
)
def test_a_wrong_runner_says_what_would_be_right(value, message):
    with pytest.raises(ConfigError, match=message):
        load(RunnerConfig, value, where="runner")


def test_direct_is_beams_in_process_runner_and_ignores_the_command_line(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["headway", "--runner=DataflowRunner", "--direct_num_workers=9"])
    pipeline = make_pipeline(RunnerConfig(workers=3))
    options = pipeline.options.get_all_options()
    assert type(pipeline.runner).__name__ == "FnApiRunner"
    assert (options["direct_running_mode"], options["direct_num_workers"]) == ("in_memory", 3)


def test_there_are_as_many_workers_as_cores():
    assert (RunnerConfig().threads(), RunnerConfig(workers=8).threads()) == (cores(), 8)


def test_options_reach_beam_and_unknown_ones_are_refused():
    pipeline = make_pipeline(RunnerConfig(options={"job_name": "nightly"}))
    assert pipeline.options.get_all_options()["job_name"] == "nightly"
    with pytest.raises(ConfigError, match="did you mean 'job_name'"):
        make_pipeline(RunnerConfig(options={"jobname": "nightly"}))


def test_a_runner_that_is_not_installed_is_a_config_error(monkeypatch):
    monkeypatch.setitem(config._BEAM_NAMES, "dataflow", "absent.package.DataflowRunner")
    with pytest.raises(ConfigError, match="dataflow runner cannot be used"):
        make_pipeline(RunnerConfig(name="dataflow"))


def test_importing_beam_says_nothing_and_leaves_logging_alone():
    code = """
import logging
from beam_jobs.runners.beam_import import load_beam
load_beam()
assert not logging.getLogger().handlers, logging.getLogger().handlers
assert logging.root.manager.disable == 0
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("", "")
