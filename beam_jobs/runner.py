"""Which Beam runner executes a job.

    with RunnerConfig(name="direct", workers=2).pipeline("ingest") as pipeline:
        pipeline | ...

`direct` is Beam's local runner named as FnApiRunner in multi_threading mode. Beam's own DirectRunner first tries to
download another runner; its multi_processing mode is slower here, because batches would cross processes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import Field

from headway.config import Frozen
from headway.errors import ConfigError

if TYPE_CHECKING:
    import apache_beam as beam

RUNNERS = ("direct", "FlinkRunner", "SparkRunner", "DataflowRunner", "PortableRunner", "PrismRunner")


class RunnerConfig(Frozen):
    """The runner's name, its parallelism and its own options; none of it changes what a job writes."""

    name: str = Field(default="direct", description="direct, or a Beam runner such as FlinkRunner or DataflowRunner")
    workers: int | None = Field(default=None, ge=1, description="parallel workers of the local runner; default: one a core")
    options: dict[str, Any] = Field(default={}, description="pipeline options of the runner, such as flink_master")

    def pipeline(self, job: str) -> contextlib.AbstractContextManager[beam.Pipeline]:
        """A Beam pipeline that runs when the `with` block ends and has finished when it is left.

        Raises:
            ConfigError: no such runner, or an option that it does not know.
        """
        return _pipeline(self, job)


@contextlib.contextmanager
def _pipeline(config: RunnerConfig, job: str) -> Iterator[beam.Pipeline]:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    for name in ("apache_beam", "root"):
        logger = logging.getLogger(name)
        if logger.level < logging.WARNING:
            logger.setLevel(logging.WARNING)
    runner: Any = config.name
    options: dict[str, Any] = {"job_name": job} | config.options
    with tempfile.TemporaryDirectory(prefix="headway-beam-") as scratch:
        if config.name == "direct":
            from apache_beam.runners.portability.fn_api_runner import FnApiRunner

            runner = FnApiRunner()
            options |= {"direct_running_mode": "multi_threading", "direct_num_workers": config.workers or os.cpu_count() or 1}
        elif config.name not in RUNNERS:
            raise ConfigError(f"there is no runner {config.name!r}", where="runner.name", fix=f"one of {', '.join(RUNNERS)}")
        elif config.workers is not None and "parallelism" not in options:
            options["parallelism"] = config.workers
        options.setdefault("temp_location", scratch)
        with beam.Pipeline(runner=runner, options=PipelineOptions.from_dictionary(options)) as pipeline:
            yield pipeline
