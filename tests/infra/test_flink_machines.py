"""Ingest and predict on a Flink of two machines that share nothing but the network and a bucket: the bytes of one machine."""

import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
import yaml

from tests.infra.flink_machines import ROOT, FlinkMachines, code
from tests.infra.machines import NoMachines
from tests.waiting import until

sys.path.insert(0, str(ROOT / "infra"))  # scripts, no package
import flink

pytestmark = [pytest.mark.slow, pytest.mark.flink, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

SPANS = 12
ROWS = 1200
PIPELINE = {
    "name": "flights",
    "source": {"format": "parquet"},
    "label": "arr_delay > 15",
    "columns": {"dep_delay": ["standardize"], "distance": ["log", "standardize"], "carrier": "vocabulary"},
    "split": {"key": ["carrier", "day"]},
    "model": {"hidden": [8], "embedding": 4},
    "training": {"steps": 30, "batch_size": 128},
    "gate": {"thresholds": {"auc": {"min": 0.1}}, "baseline": False},
}
IMAGES = {
    "name": "digits",
    "source": {"format": "images", "images": {"table": "labels.csv"}},
    "label": "label",
    "columns": {"image": {"image": {"height": 8, "width": 8, "channels": 1}}},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    own = os.environ.get("JAVA_TOOL_OPTIONS", "")
    with pytest.MonkeyPatch.context() as patch:
        # each Java lives for minutes: to compile its code well costs more than it saves
        patch.setenv("JAVA_TOOL_OPTIONS", f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {own}".strip())
        try:
            with FlinkMachines(tmp_path_factory.mktemp("machines"), flink.jars()) as made:
                yield made
        except (flink.Unavailable, NoMachines) as error:
            pytest.skip(str(error))


@pytest.fixture(scope="module")
def raw(cluster, flights):
    """A bucket with raw files: twelve months, images, and a long file."""
    bucket = cluster.bucket()
    months = []
    for month in range(1, SPANS + 1):
        months.append(flights.filter(pc.equal(flights["month"], month)).slice(0, ROWS))
        _put(cluster, f"{bucket}/months/2013-{month:02d}.parquet", months[-1])
    _put(cluster, f"{bucket}/long/2013-01.parquet", pa.concat_tables([flights] * 6), 50_000)
    _put_images(cluster, f"{bucket}/images")
    return bucket


def _put(cluster, path, table, group=400):
    with cluster.s3.open_output_stream(path) as file:
        pq.write_table(table, file, row_group_size=group)


def _put_images(cluster, folder, count=300):
    from PIL import Image

    lines = ["file,label"]
    for number in range(count):
        picture, name = io.BytesIO(), f"{number:04d}.png"
        Image.frombytes("L", (8, 8), hashlib.sha512(b"%d" % number).digest()).save(picture, "PNG")
        with cluster.s3.open_output_stream(f"{folder}/{name}") as file:
            file.write(picture.getvalue())
        lines.append(f"{name},{number % 10}")
    with cluster.s3.open_output_stream(f"{folder}/labels.csv") as file:
        file.write("\n".join(lines).encode())


class Driver:
    """A person at this machine with a folder of pipelines."""

    def __init__(self, cluster, folder):
        self.cluster, self.folder = cluster, folder
        self.env = os.environ | cluster.env | {"XDG_CACHE_HOME": str(folder / "cache")}

    def pipeline(self, name, pipeline, path, store, there=True):
        """A pipeline.yaml over raw files of a bucket; on the cluster, or here."""
        runner = {"runner": self.cluster.runner.model_dump(exclude={"workers"})} if there else {}
        config = pipeline | {"source": pipeline["source"] | {"path": path}, "store": store} | runner
        file = self.folder / name / "pipeline.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(yaml.safe_dump(config))
        return file

    def begin(self, *arguments):
        command = [sys.executable, "-P", "-m", "flows.cli", *map(str, arguments), "--json"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env)

    def ends(self, process, code, within=200):
        """The answer, and what was told on the way."""
        answer, told = process.communicate(timeout=within)
        assert process.returncode == code, (
            f"exit {process.returncode}\n{answer[-3000:]}\n{told[-3000:]}\n{self._logs()}"
        )
        assert "Traceback" not in told + answer, told + answer
        return json.loads(answer), told

    def type(self, *arguments, code=0):
        return self.ends(self.begin(*arguments), code)[0]

    def _logs(self):
        return "\n".join(f"{each.log.name}: {each.tail()}" for each in (*self.cluster.pools, *self.cluster.managers))


@pytest.fixture
def driver(cluster, tmp_path):
    return Driver(cluster, tmp_path)


def _here(folder):
    """{file of an ingest output: its bytes} of a store's folder, by fingerprint."""
    files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return {name: data for name, data in files.items() if not name.endswith("manifest.json")}


def _there(cluster, folder, *, attempts=True):
    """The same of a bucket, in whose store the files lie in the folder of an attempt."""
    files = {}
    for info in cluster.s3.get_file_info(pafs.FileSelector(folder, recursive=True, allow_not_found=True)):
        if info.type == pafs.FileType.File:
            parts = info.path[len(folder) + 1 :].split("/")
            if attempts and len(parts) > 2:
                del parts[1]
            with cluster.s3.open_input_stream(info.path) as file:
                files["/".join(parts)] = file.read()
    return {name: data for name, data in files.items() if not name.endswith("manifest.json")}


def _same(ours, theirs):
    assert {*ours} == {*theirs}
    assert not [name for name in ours if ours[name] != theirs[name]]
    return len(ours)


def test_ingest_and_predict_write_the_bytes_of_one_machine(cluster, raw, driver):
    store = f"s3://{cluster.bucket()}/store"
    months = f"s3://{raw}/months/{{span}}.parquet"
    there = driver.pipeline("there", PIPELINE, months, store)
    here = driver.pipeline("here", PIPELINE, months, "store", there=False)
    for pipeline in (there, here):
        driver.type("run", "--to", "ingest", pipeline)
    files = _same(_here(driver.folder / "here/store/stages/ingest"), _there(cluster, f"{store[5:]}/stages/ingest"))
    assert files > 12 * SPANS
    assert all("Starting worker" in pool.log.read_text() for pool in cluster.pools), "one machine did nothing"

    images = driver.pipeline("images", IMAGES, f"s3://{raw}/images", store)
    driver.type("run", "--to", "ingest", images)
    driver.type(
        "run", "--to", "ingest", driver.pipeline("images-here", IMAGES, f"s3://{raw}/images", "store", there=False)
    )
    here_store = driver.folder / "images-here/store/stages/ingest"
    both = _there(cluster, f"{store[5:]}/stages/ingest")
    (fingerprint,) = {path.name for path in here_store.iterdir()}
    theirs = {name: data for name, data in both.items() if name.startswith(fingerprint)}
    assert _same(_here(here_store), theirs) >= 3

    driver.type("run", there)
    asked = ("--model", "champion", "--input", f"s3://{raw}/months", "--columns", "flight,carrier")
    scored = f"{raw}/scored"
    found = driver.type("predict", there, *asked, "--output", f"s3://{scored}")
    assert found["counts"]["predicted"] == SPANS * ROWS
    direct = driver.pipeline("direct", PIPELINE, months, store, there=False)
    driver.type("predict", direct, *asked, "--output", driver.folder / "scored")
    _same(_here(driver.folder / "scored"), _there(cluster, scored, attempts=False))


def _reading(cluster, driver, process, store, ranges=1):
    """Wait until workers have delivered ranges into the store."""

    def delivered():
        assert process.poll() is None, process.communicate()
        names = _there(cluster, store[5:], attempts=False)
        return sum(name.endswith("facts.json") for name in names) >= ranges

    until(delivered, 120)


def test_a_task_manager_that_is_killed_and_comes_back_costs_no_byte(cluster, raw, driver):
    store, long = f"s3://{cluster.bucket()}/store", f"s3://{raw}/long/{{span}}.parquet"
    process = driver.begin("run", "--to", "ingest", driver.pipeline("there", PIPELINE, long, store))
    _reading(cluster, driver, process, store)
    for each in (cluster.managers[0], cluster.pools[0]):
        each.kill()
    for each in (cluster.pools[0], cluster.managers[0]):
        each.begin()
    driver.ends(process, 0)
    driver.type("run", "--to", "ingest", driver.pipeline("here", PIPELINE, long, "store", there=False))
    _same(_here(driver.folder / "here/store/stages/ingest"), _there(cluster, f"{store[5:]}/stages/ingest"))
    until(lambda: cluster.slots() == 2)


def test_a_ctrl_c_ends_the_job_and_leaves_nothing(cluster, raw, driver):
    store = f"s3://{cluster.bucket()}/store"
    process = driver.begin(
        "run", "--to", "ingest", driver.pipeline("there", PIPELINE, f"s3://{raw}/long/{{span}}.parquet", store)
    )
    _reading(cluster, driver, process, store)
    process.send_signal(signal.SIGINT)
    driver.ends(process, 130, within=60)
    ended = {"CANCELED", "FINISHED", "FAILED"}
    until(lambda: {*flink.jobs(cluster.rest).values()} <= ended, about=lambda: flink.jobs(cluster.rest))
    time.sleep(1)  # a worker that goes on would put its range now
    assert not [name for name in _there(cluster, store[5:]) if name.endswith((".tfrecord", "facts.json"))]


def test_a_damaged_file_is_named(cluster, raw, driver):
    bucket = cluster.bucket()
    for month in ("2013-01", "2013-02"):
        cluster.s3.copy_file(f"{raw}/months/{month}.parquet", f"{bucket}/raw/{month}.parquet")
    pipeline = driver.pipeline("there", PIPELINE, f"s3://{bucket}/raw/{{span}}.parquet", f"s3://{bucket}/store")
    with cluster.s3.open_input_stream(f"{bucket}/raw/2013-02.parquet") as file:
        data = bytearray(file.read())
    data[4:2000] = bytes(1996)  # its footer is whole
    with cluster.s3.open_output_stream(f"{bucket}/raw/2013-02.parquet") as file:
        file.write(data)
    found = driver.type("run", "--to", "ingest", pipeline, code=3)["error"]
    assert found["kind"] == "DataError" and found["where"] == f"s3://{bucket}/raw/2013-02.parquet", found
    assert found["fix"]
    cluster.s3.copy_file(f"{raw}/months/2013-02.parquet", f"{bucket}/raw/2013-02.parquet")
    driver.type("run", "--to", "ingest", pipeline)


@pytest.fixture
def other_pool(cluster):
    """Let another command serve as the second machine's worker pool, and the usual one again at the end."""

    def begin(*line):
        cluster.pools[1].kill()
        cluster.pools[1].begin(line)

    yield begin
    cluster.pools[1].kill()
    cluster.pools[1].begin()


def test_a_worker_of_another_version_is_named(cluster, raw, driver, other_pool):
    other = code(cluster.site / "other", version="9.9.9")
    pool = [
        "env",
        f"PYTHONPATH={other}",
        sys.executable,
        "-P",
        "-m",
        "beam_jobs.runners.worker_pool",
        "--port",
        "50000",
    ]
    other_pool(*pool)
    store = f"s3://{cluster.bucket()}/store"
    pipeline = driver.pipeline("there", PIPELINE, f"s3://{raw}/months/{{span}}.parquet", store)
    found = driver.type("run", "--to", "ingest", pipeline, code=2)["error"]
    assert "a worker runs Headway 9.9.9 on Python" in found["problem"], found
    assert found["fix"] == "install the driver's versions on every worker"


def test_a_worker_without_the_code_is_named(cluster, raw, driver, other_pool):
    """Beam's own pool serves any Python that has Beam."""
    pool = f"PATH={sys.prefix}/bin:$PATH PYTHONPATH= python -m apache_beam.runners.worker.worker_pool_main"
    other_pool("sh", "-c", f"echo workers start at 50000; exec env {pool} --service_port 50000")
    store = f"s3://{cluster.bucket()}/store"
    pipeline = driver.pipeline("there", PIPELINE, f"s3://{raw}/months/{{span}}.parquet", store)
    found = driver.ends(driver.begin("run", "--to", "ingest", pipeline), 2, within=170)[0]["error"]
    lacks = r"a worker does not have the code of the job: No module named '(headway|beam_jobs)'"
    assert re.fullmatch(lacks, found["problem"]), found
    assert found["where"] == "runner" and found["fix"].startswith("install the driver's versions on every worker")
    until(lambda: "RUNNING" not in flink.jobs(cluster.rest).values(), about=lambda: flink.jobs(cluster.rest))
