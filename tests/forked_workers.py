"""The processes of pytest-xdist, forked from one that has collected: each would import and collect the same for eight seconds.

What xdist starts as a Python is a launcher: it hands its streams to the process that has collected. That forks, and the child
answers xdist on these streams, as `xdist.remote` does, but goes on with the session that it has.
"""

import atexit
import contextlib
import json
import os
import select
import shlex
import socket
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import pytest
from _pytest.config import _prepareconfig
from execnet.gateway_base import get_execmodel

LAUNCHER = """
import os, signal, socket, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that has the streams ends
collector = socket.socket(socket.AF_UNIX)
collector.connect(sys.argv[1])
socket.send_fds(collector, [b"."], [0, 1, 2])
os.dup2(2, 0), os.dup2(2, 1)  # xdist sees that the process has ended by the end of its streams
collector.recv(1)
"""
COLLECTOR = """
import json, sys
sys.path[:], *more = json.loads(sys.argv[1])
from tests.forked_workers import collect
collect(*more)
"""


class Launchers:
    """A plugin of the process that the user has started."""

    def __init__(self):
        self._ends = contextlib.ExitStack()
        self._config = None

    def pytest_collectreport(self, report):
        """End after a failed collection: tests in a process that has forked threads of TensorFlow away wait for ever."""
        scheduler = self._config and self._config.pluginmanager.getplugin("dsession")
        if report.failed and scheduler:
            scheduler.shouldstop = "the collection failed"

    def pytest_xdist_setupnodes(self, config, specs):
        self._config = config
        address = f"{self._ends.enter_context(tempfile.TemporaryDirectory())}/socket"
        listener = self._ends.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(address)
        listener.listen()
        more = [sys.path, listener.fileno(), [*map(str, config.invocation_params.args)]]
        command = [sys.executable, "-P", "-c", COLLECTOR, json.dumps(more)]
        collector = subprocess.Popen(
            command, pass_fds=[listener.fileno()], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        listener.close()
        self._ends.callback(collector.wait)
        self._ends.callback(collector.stdin.close)
        for spec in specs:
            spec.python = shlex.join([sys.executable, "-I", "-S", "-c", LAUNCHER, address])

    def pytest_xdist_getremotemodule(self):
        return "from tests.forked_workers import FORKS; FORKS.begin(channel)"

    def pytest_unconfigure(self):
        self._ends.close()


class Forks:
    """A plugin of the process that collects, and of those that it forks."""

    def __init__(self):
        self.listener = self.parent = self.interactor = self.session = None
        self.events = []
        """Those of the collection, which xdist is told by each process."""

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector):
        before = _has_run_ops()
        report = yield
        if _has_run_ops() and not before:
            report.outcome = "failed"
            report.longrepr = (
                f"{collector.nodeid} runs an op of TensorFlow as it is imported: make tensors in its tests"
            )
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        self.session = session
        while self.listener in select.select([self.listener, self.parent], [], [])[0]:
            launcher = self.listener.accept()[0]
            if os.fork() == 0:
                self._answer(launcher)
            launcher.close()
        with contextlib.suppress(ChildProcessError):
            while os.wait():
                pass
        os._exit(0)

    def _answer(self, launcher):
        """Be what execnet has started."""
        try:
            self.session.config.pluginmanager.getplugin("capturemanager").stop_global_capturing()
            for number, stream in enumerate(socket.recv_fds(launcher, 1, 3)[1]):
                os.dup2(stream, number)
                os.close(stream)
            exec(eval(sys.stdin.readline()), {"__name__": "__main__"})
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            atexit._run_exitfuncs()
            os._exit(0)

    def begin(self, channel):
        """Be a process of xdist that has just collected."""
        config, interactor = self.session.config, self.interactor
        config.workerinput, _, options, _ = channel.receive()
        interactor.workerid, interactor.testrunuid = (config.workerinput[name] for name in ("workerid", "testrunuid"))
        os.environ |= {
            "PYTEST_XDIST_WORKER": interactor.workerid,
            "PYTEST_XDIST_WORKER_COUNT": str(config.workerinput["workercount"]),
            "PYTEST_XDIST_TESTRUNUID": interactor.testrunuid,
        }
        config.option.basetemp = options.get("basetemp")
        config.pluginmanager.getplugin("tmpdir").pytest_configure(config)
        capture = config.pluginmanager.getplugin("capturemanager")
        capture.start_global_capturing()
        capture.suspend_global_capture()
        interactor.channel = channel
        for event in self.events:
            channel.send(event)
        status = 0
        try:
            interactor.pytest_runtestloop(self.session)
        except (KeyboardInterrupt, pytest.exit.Exception):
            status = 2
        config.hook.pytest_sessionfinish(session=self.session, exitstatus=status)
        config._ensure_unconfigure()


FORKS = Forks()


def _has_run_ops():
    """Whether TensorFlow has threads, which are not in a fork."""
    eager = sys.modules.get("tensorflow.python.eager.context")
    return eager is not None and eager.context()._initialized


def collect(listener, arguments):
    """Collect, as a process of xdist does; then fork one for each launcher, until the end of stdin."""
    os.environ["PYTEST_XDIST_WORKER"] = "collector"
    FORKS.listener, FORKS.parent = socket.socket(fileno=listener), os.dup(0)  # pytest has a stdin of its own
    config = _prepareconfig(arguments, None)
    from xdist import remote  # pytest wants to rewrite it, and so to be first

    remote.setup_config(config, None)
    config.workerinput, config.workeroutput = {"workerid": "collector", "testrunuid": ""}, {}
    gateway = SimpleNamespace(execmodel=get_execmodel("main_thread_only"))
    FORKS.interactor = remote.interactor = remote.WorkerInteractor(
        config, SimpleNamespace(send=FORKS.events.append, gateway=gateway)
    )
    config.pluginmanager.register(FORKS)
    sys.exit(config.hook.pytest_cmdline_main(config=config))
