"""Processes that have TensorFlow imported when they begin: forked, where starting each anew takes seconds of a processor.

    with ForkServer(folder) as server:
        process = server.Popen([sys.executable, "-P", "-u", ".../tfcore/runtime/start.py", "tensorflow", "keras"], env=...)

Takes the place of `headway.process.subprocess` for tests that are not about the start of a process. One server imports
TensorFlow and Keras, another what a replay may import; neither runs an op, so that a fork finds nothing begun. What they
fork runs the very module or script that was asked for, with the environment, folder and pipes it would have had. Processes
that name one folder share these servers, which end when the last of them has closed its connection.
Other commands, and those whose environment TensorFlow reads while it is imported, are started as ever.
"""

import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

WORKER = str(Path(__file__).parent.parent / "tfcore" / "runtime" / "start.py")
PRELOAD = ["tensorflow", "keras"]
OPTIONS = {"-I", "-P", "-u"}
"""Of the interpreter; a server began with those of its kind."""
READ_EARLY = ("CUDA_", "GRPC_", "KERAS_", "MKL_", "OMP_", "OPENBLAS_", "PYTHON", "TF_", "XLA_")
"""How variables begin that are read while TensorFlow or Python starts."""
READ_LATER = {"TF_CONFIG", "GRPC_ENABLE_FORK_SUPPORT", "PYTHONPATH"}
"""Those among them that are read later; of PYTHONPATH, the process gets the folders that the server does not have."""
OF_WORKERS = {"KERAS_BACKEND", "TF_CPP_MIN_LOG_LEVEL"}
"""What a worker sets for itself, and a replay that it starts does not need."""

STAGES = ["tfcore.train.stage", "tfcore.evaluation.stage", "tfcore.export.saved_model"]
"""What the processes of nearly every run import first."""

OWN = {"HEADWAY_SCRATCH", "TMPDIR"}
"""What names a folder of one process alone."""


def early(env, kind):
    """The variables that a process of a kind reads while it starts."""
    later = READ_LATER if kind == "worker" else READ_LATER | OF_WORKERS
    return {name: value for name, value in env.items() if name.startswith(READ_EARLY) and name not in later}


class ForkServer:
    """See the module; `PIPE`, `DEVNULL`, `TimeoutExpired` and `Popen` are subprocess's, as `headway.process` uses them."""

    PIPE, DEVNULL, TimeoutExpired = subprocess.PIPE, subprocess.DEVNULL, subprocess.TimeoutExpired

    def __init__(self, folder):
        self._folder, self._servers, self._started, self._starting = folder, {}, [], threading.Lock()
        self._environment = {name: value for name, value in os.environ.items() if name not in OWN}

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for connection, _ in self._servers.values():
            connection.close()
        for process in self._started:  # one that others are still connected to ends later
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)

    def Popen(self, command, *, env, cwd=None, **more):
        python, *arguments = command
        worker = WORKER in arguments and arguments[-2:] == PRELOAD
        kind = "worker" if worker else "replay" if arguments[0] == "-I" else None
        if kind is None or python != sys.executable:
            return subprocess.Popen(command, env=env, cwd=cwd, **more)
        return self._forked(kind, arguments, env, cwd) or subprocess.Popen(command, env=env, cwd=cwd, **more)

    def start(self, script, *arguments, cwd=None, env=None):
        """Start `python script arguments`, with this environment or another; the script may be -m. Its streams are pipes."""
        words, env = ["-P", "-u", str(script), *map(str, arguments)], dict(os.environ if env is None else env)
        return self._forked("worker", words, env, cwd) or subprocess.Popen(
            [sys.executable, *words],
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )

    def run(self, script, *arguments, cwd=None, env=None):
        """Run such a process to its end: (exit code, stdout, stderr)."""
        process = self.start(script, *arguments, cwd=cwd, env=env)
        process.stdin.close()
        out = {}

        def read(name):
            with getattr(process, name) as stream:
                out[name] = stream.read().decode()

        threads = [threading.Thread(target=read, args=(name,)) for name in ("stdout", "stderr")]
        for thread in threads:
            thread.start()
        try:
            code = process.wait()
        except BaseException:  # such as of the guard against tests that hang
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            for thread in threads:
                thread.join()
        return code, out["stdout"], out["stderr"]

    def _forked(self, kind, arguments, env, cwd):
        """The process; None where its environment is another than the server's."""
        with self._starting:
            for each in {kind, "replay"} - set(self._servers):  # a worker's replays: their server outlives the worker
                self._servers[each] = self._connected(each)
        control, began_with = self._servers[kind]
        if early(env, kind) != began_with:
            return None
        asked = {"arguments": arguments, "env": env, "cwd": str(cwd or Path.cwd()), "folder": str(self._folder)}
        return Forked(control, asked)

    def _connected(self, kind):
        """A connection to the folder's server of a kind, which is started where there is none, and what it began with."""
        note = self._folder / f"fork-server-{kind}.json"
        with note.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with contextlib.suppress(OSError):
                said = json.loads(note.read_text())
                return _connection(said["address"]), said["began_with"]
            address = f"{tempfile.mkdtemp(prefix='fork-server-')}/socket"  # the path of a socket has to be short
            options = ["-P", "-u"] if kind == "worker" else ["-I", "-u"]
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                listener.bind(address)
                listener.listen()
                process = subprocess.Popen(
                    [sys.executable, *options, __file__, kind, str(listener.fileno())],
                    env=self._environment,
                    cwd="/",
                    pass_fds=[listener.fileno()],
                    stdin=subprocess.DEVNULL,
                    process_group=0,
                )
                connection = _connection(address)
            self._started.append(process)
            began_with = early(self._environment, kind)
            note.write_text(json.dumps({"address": address, "began_with": began_with}))
            return connection, began_with


def _connection(address):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


class Forked:
    """What `ChildProcess` uses of a Popen."""

    def __init__(self, control, asked):
        theirs, ours = zip(*(reversed(os.pipe()) if stream else os.pipe() for stream in range(4)), strict=True)
        socket.send_fds(control, [json.dumps(asked).encode()], theirs)
        for descriptor in theirs:
            os.close(descriptor)
        # stdin, stdout, stderr, and the pipe that says its pid and how it ended
        self.stdin = os.fdopen(ours[0], "wb")
        self.stdout, self.stderr, self._told = (os.fdopen(descriptor, "rb") for descriptor in ours[1:])
        self.pid, self.returncode, self._waiting = int(self._told.readline()), None, threading.Lock()

    def wait(self, timeout=None):
        with self._waiting:  # a ChildProcess's threads ask too
            if self.returncode is None:
                if not select.select([self._told], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired("a forked process", timeout)
                with self._told:
                    self.returncode = int(self._told.readline())
            return self.returncode


def serve(kind, listener):
    """Import what processes of the kind begin with; then fork one for each message, until nobody can send any."""
    if kind == "worker":
        gc.disable()
        import keras  # noqa: F401 - it imports TensorFlow

        for module in STAGES:
            importlib.import_module(module)
        gc.freeze()
        gc.enable()
        import numpy
        import pyarrow.parquet

        pyarrow.array(numpy.arange(1))  # the first looks for pandas, which takes half a second to import
    else:
        for name in ("keras", "tf_keras", "headway", "tfcore", "beam_jobs", "flows"):
            sys.modules[name] = None
        import numpy
        import tensorflow  # noqa: F401
    signal.signal(signal.SIGCHLD, _reap)
    connections = [listener.accept()[0]]
    while connections:
        for ready in select.select([listener, *connections], [], [])[0]:
            if ready is listener:
                connections.append(listener.accept()[0])
                continue
            message, descriptors = _received(ready)
            if not message:
                ready.close()
                connections.remove(ready)
            elif os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for ours in (listener, *connections):
                    ours.close()
                _watch(json.loads(message), descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
    shutil.rmtree(Path(listener.getsockname()).parent, ignore_errors=True)


def _received(connection):
    try:
        return socket.recv_fds(connection, 1 << 20, 4)[:2]
    except ConnectionError:
        return b"", []


def _reap(*signalled):
    """Let what has ended go: its processor time then counts as this process's."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _watch(asked, descriptors):
    """Fork the process, say its pid, and how it ended."""
    *streams, told = descriptors
    if (pid := os.fork()) == 0:
        os.close(told)
        _run(asked, streams)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)
    for descriptor in (0, 1, 2, *streams):
        os.close(descriptor)
    with contextlib.suppress(BrokenPipeError):
        os.write(told, b"%d\n" % pid)
        os.write(told, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


def _run(asked, streams):
    """Become the process that was asked for."""
    code = 1
    try:
        os.setpgid(0, 0)
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(asked["env"])
        tempfile.tempdir = None  # TMPDIR is its own
        folders = filter(None, asked["env"].get("PYTHONPATH", "").split(os.pathsep))
        sys.path[:0] = [folder for folder in folders if folder not in sys.path]
        os.chdir(asked["cwd"])
        words = [word for word in asked["arguments"] if word not in OPTIONS]
        if words[0] in (WORKER, "-m"):  # what it starts, too, such as its replay
            import headway.process

            headway.process.subprocess = ForkServer(Path(asked["folder"]))
        if words[0] == "-m":
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words
            runpy.run_path(words[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        atexit._run_exitfuncs()  # such as those that send the last spans of a command
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
