"""`runner:` of pipeline.yaml: which Beam runner, its options, its workers.

    runner: direct                                                  # threads of this process, one per core
    runner: {name: flink, options: {job_endpoint: "jobs:8099"}}     # any runner that Beam knows, with its own options

`direct` is Beam's in-process runner. Beam gets its class name, FnApiRunner: asked for a DirectRunner, Beam first tries to
download another runner.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator

from beam_jobs.runners.beam_import import load_beam
from headway.config import Frozen
from headway.errors import ConfigError
from headway.messages import did_you_mean
from headway.process import cores
from headway.schema.columns import suggest

_BEAM_NAMES = {
    "direct": "FnApiRunner",
    "flink": "FlinkRunner",
    "spark": "SparkRunner",
    "dataflow": "DataflowRunner",
    "prism": "PrismRunner",
    "portable": "PortableRunner",
}


_MODES = ("in_memory", "multi_threading")
"""The modes of the direct runner."""
JOB_SERVERS = ("flink", "spark", "portable")
"""The runners that hand their jobs to a job server."""


class RunnerConfig(Frozen):
    """The Beam runner and its options. It changes how fast a job runs, never what it writes."""

    name: str = Field(default="direct", description=f"one of {', '.join(_BEAM_NAMES)}")
    workers: int | None = Field(default=None, ge=1, description="threads of the direct runner; default: one per core")
    options: dict[str, Any] = Field(default_factory=dict, description="Beam's pipeline options, by their names")

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @field_validator("name")
    @classmethod
    def _runner_name(cls, value: str) -> str:
        short = value.lower().removesuffix("runner")
        short = "direct" if short == "fnapi" else short
        if short not in _BEAM_NAMES:
            raise ValueError(f"{value!r} is not a runner; {suggest(short, list(_BEAM_NAMES))}")
        return short

    @model_validator(mode="after")
    def _workers_are_threads(self) -> RunnerConfig:
        if self.workers is not None and self.name != "direct":
            raise ValueError(f"workers are threads of the direct runner; give the {self.name} runner its own option")
        if self.name == "direct" and "direct_num_workers" in self.options:
            raise ValueError("direct_num_workers has no effect; set runner.workers")
        mode = self.options.get("direct_running_mode", _MODES[0])
        if mode == "multi_processing":
            raise ValueError("direct_running_mode: multi_processing of Beam 2.77 loses elements; leave it out")
        if mode not in _MODES:
            raise ValueError(f"direct_running_mode is {mode!r}; there is: {', '.join(_MODES)}")
        return self

    def threads(self) -> int:
        """Returns the number of threads of the direct runner: `workers`, or one per core."""
        return self.workers or cores()


def make_pipeline(config: RunnerConfig) -> Any:
    """Make an empty beam.Pipeline on the configured runner; imports Beam.

    Raises:
        ConfigError: an option that Beam does not know, no job server is named, or a runner is not installed.
    """
    beam = load_beam()
    from apache_beam.options.pipeline_options import PipelineOptions

    options = dict(config.options)
    beam_options = PipelineOptions(flags=[]).get_all_options() if options else {}
    for name in options:
        if name not in beam_options:
            fix = did_you_mean(name, beam_options, "see the options of Beam's runner")
            raise ConfigError(f"{name!r} is not a pipeline option of Beam", where="runner.options", fix=fix)
    if config.name in JOB_SERVERS and not (
        options.get("job_endpoint") or options.get(f"{config.name}_submit_uber_jar")
    ):
        problem = f"the {config.name} runner needs the address of a job server"
        fix = "start one, and give job_endpoint, such as localhost:8099; see docs/runners.md"
        raise ConfigError(problem, where="runner.options.job_endpoint", fix=fix)
    if config.name == "direct":
        options = {"direct_running_mode": _MODES[0], "direct_num_workers": config.threads()} | options
    try:
        # flags=[]: Beam would read this process's command line otherwise
        return beam.Pipeline(_BEAM_NAMES[config.name], options=PipelineOptions(flags=[], **options))
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"the {config.name} runner cannot be used: {str(error).splitlines()[0]}",
            where="runner",
            fix="install what it needs (dataflow: pip install 'apache-beam[gcp]'), and check runner.options",
        ) from None
