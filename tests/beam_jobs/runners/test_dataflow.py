"""The pipeline that Dataflow would get: small functions, no path of this machine, and the wheel among what is staged."""

import base64
import bz2
import contextlib
import re
import sys
import zlib
from importlib.util import find_spec
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import WorkerOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms import environments

from beam_jobs.ingest.stage import IngestJob, ingest
from beam_jobs.runners.config import RunnerConfig, make_pipeline
from beam_jobs.runners.pipeline import ProcessSpans
from headway.errors import HeadwayError
from headway.monitor import Monitor
from headway.sources.base import InputFile
from tests.beam_jobs.conftest import make_request

ROOT = Path(__file__).parents[3]
SPANS = 12
MOST_BYTES = 64 << 10


@pytest.fixture
def options(tmp_path):
    wheel = tmp_path / "headway-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    return {
        "project": "team",
        "region": "europe-west1",
        "temp_location": "gs://team/tmp",
        "sdk_container_image": "europe-docker.pkg.dev/team/beam/headway:0.1.0",
        "extra_packages": [str(wheel)],
    }


@pytest.fixture
def proto(options, write_csv):
    """The pipeline of twelve spans of a bucket, with Dataflow's options and its kind of environment."""
    local = make_request(write_csv(10))
    jobs = []
    for month in range(1, SPANS + 1):
        source = local.source.model_copy(update={"path": "gs://team/raw/{span}.csv"})
        files = (InputFile(path=f"gs://team/raw/2013-{month:02d}.csv", bytes=1 << 30, crc32c="00000000"),)
        request = local.model_copy(update={"span": f"2013-{month:02d}", "files": files, "source": source})
        jobs.append(IngestJob(request, f"gs://team/store/stages/ingest/{month:032x}/attempt"))
    pipeline = make_pipeline(RunnerConfig(name="dataflow", options=options))
    pipeline | ProcessSpans(jobs, "0" * 32)
    image = pipeline.options.view_as(WorkerOptions).sdk_container_image
    staged = environments.python_sdk_dependencies(pipeline.options)
    environment = environments.DockerEnvironment.from_container_image(image, artifacts=staged)
    return pipeline.to_runner_api(default_environment=environment)


def test_every_function_is_small_and_names_no_path_of_this_machine(proto, tmp_path):
    functions = {}
    for name, transform in proto.components.transforms.items():
        if transform.spec.urn == "beam:transform:pardo:v1":
            payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            functions[name] = payload.do_fn.payload
    assert len(functions) >= 4
    assert not {name: len(data) for name, data in functions.items() if len(data) >= MOST_BYTES}
    components = beam_runner_api_pb2.Components()
    components.CopyFrom(proto.components)
    components.environments.clear()  # what is staged has a path, by which the driver finds it
    whole = components.SerializeToString() + b"".join(map(_pickled, functions.values()))
    for path in (ROOT, tmp_path, sys.prefix, Path.home()):
        named = {*re.findall(re.escape(str(path).encode()) + rb"[ -~]*", whole)}
        # Beam pickles the code of its own lambdas, with the file that a traceback names
        assert not [name for name in named if not name.endswith(b".py")], path
    assert b"gs://team/raw/2013-12.csv" in whole


def _pickled(payload):
    """The pickle in a payload of Beam's, which is compressed."""
    for unpack in (zlib.decompress, bz2.decompress):
        with contextlib.suppress(OSError, zlib.error):
            return unpack(base64.b64decode(payload))
    raise AssertionError(payload[:60])


def test_the_wheel_is_staged_and_the_image_is_named(proto, options):
    (environment,) = proto.components.environments.values()
    docker = beam_runner_api_pb2.DockerPayload.FromString(environment.payload)
    assert docker.container_image == options["sdk_container_image"]
    staged = [
        beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(d.role_payload) for d in environment.dependencies
    ]
    assert "headway-0.1.0-py3-none-any.whl" in {artifact.staged_name for artifact in staged}


def test_without_its_client_the_job_is_an_error_with_the_fix(options, write_csv, tmp_path):
    if find_spec("apitools") is not None:
        pytest.skip("apache-beam[gcp] is installed")
    runner = RunnerConfig(name="dataflow", options=options)
    with pytest.raises(HeadwayError) as error:
        ingest(make_request(write_csv(10)), tmp_path / "out", Monitor(), runner=runner)
    assert "please install apache_beam[gcp]" in str(error.value), error.value
