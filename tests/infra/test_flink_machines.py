"""Ingest and predict on a Flink of two machines that share nothing but the network and a bucket: the bytes of one machine."""

import json
import os
import re
import subprocess
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
import yaml

from tests.infra.flink_machines import ROOT, FlinkMachines
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
    """A bucket with raw files: twelve months, and a long file."""
    bucket = cluster.bucket()
    months = []
    for month in range(1, SPANS + 1):
        months.append(flights.filter(pc.equal(flights["month"], month)).slice(0, ROWS))
        _put(cluster, f"{bucket}/months/2013-{month:02d}.parquet", months[-1])
    _put(cluster, f"{bucket}/long/2013-01.parquet", pa.concat_tables([flights] * 6), 50_000)
    return bucket


def _put(cluster, path, table, group=400):
    with cluster.s3.open_output_stream(path) as file:
        pq.write_table(table, file, row_group_size=group)


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


@pytest.fixture
def other_pool(cluster):
    """Let another command serve as the second machine's worker pool, and the usual one again at the end."""

    def begin(*line):
        cluster.pools[1].kill()
        cluster.pools[1].begin(line)

    yield begin
    cluster.pools[1].kill()
    cluster.pools[1].begin()


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
