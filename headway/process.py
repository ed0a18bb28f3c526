"""Headway's own processes: how they are marked, the warnings they show, threads, and child processes that answer JSON requests.

    mark_own_process()         # first in a process that does nothing else: worker, command line, Beam's worker
    if is_own_process(): ...   # in a library: make ops deterministic, set threads, hide GPUs, silence an import
    quiet_libraries()  # hides warnings that libraries write for developers from people who type commands
    with gc_paused():
        import tensorflow
    in_threads(function, items)

    child = ChildProcess(["-I", "script.py"], answers.put, on_line=print)
    child.send({"rows": 3})                       # a line of its stdin; each line of its stdout goes to `answers.put`
    child.close(5.0)

    with Scratch("replay") as folder:             # a temporary folder; making one deletes those of killed processes

A process that merely imports Headway, such as a notebook, keeps its own settings.
"""

import collections
import contextlib
import fcntl
import gc
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, NoReturn, TypeVar

LAST_LINES = 20
"""The number of a child's last printed lines that an error shows."""
MOST_THREADS = 8
"""The most threads of `in_threads`, since each holds arrays of its own."""
Item = TypeVar("Item")
Made = TypeVar("Made")
SCRATCH = "HEADWAY_SCRATCH"
"""The environment variable that names the folder of a child's temporary files, which is deleted with the child."""
_SCRATCH_PREFIX = "headway-scratch-"
_NEW_SECONDS = 60.0
"""The age in seconds below which a scratch folder is kept: its process may not have locked it yet."""
_OWN: list[int | None] = []
_LIBRARIES = (
    "absl|apache_beam|dateutil|fsspec|google|grpc|h5py|jax|keras|ml_dtypes|numpy|pandas|prefect|pyarrow|pydantic|"
    "pydantic_settings|sqlalchemy|tensorboard|tensorflow|tensorflow_metadata"
)
_OURS = "headway|beam_jobs|flows|tfcore"


def mark_own_process(lifeline: int | None = None) -> None:
    """Marks this process as Headway's own, which may set threads, hide GPUs etc. Call this before TensorFlow is imported.

    Args:
        lifeline: the descriptor of a pipe; when the pipe is closed, this process has to end. None: there is no such pipe.
    """
    _OWN[:] = [lifeline]


def is_own_process() -> bool:
    """Returns whether this process is Headway's own, as marked by `mark_own_process`."""
    return bool(_OWN)


def quiet_libraries() -> None:
    """Ignores warnings from libraries, unless -W or PYTHONWARNINGS is set. Those from the user's own module are still shown."""
    if not sys.warnoptions:
        warnings.filterwarnings("ignore", module=rf"({_LIBRARIES})(\.|$)")
        for category in (DeprecationWarning, FutureWarning, PendingDeprecationWarning):  # told of a library by our call
            warnings.filterwarnings("ignore", category=category, module=rf"({_OURS})(\.|$)")


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Pauses Python's garbage collector in the block, and exempts from it for good what there is at the end. While TensorFlow
    is imported, the collector would scan half a million lasting objects again and again, and free none of them."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if before:
            gc.enable()


def cores() -> int:
    """Returns the number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(
    function: Callable[[Item], Made],
    items: Sequence[Item],
    *,
    most: int = MOST_THREADS,
    check: Callable[[], None] = lambda: None,
) -> list[Made]:
    """Returns `function` of each item, in order, computed in as many threads as there are cores. Useful for NumPy and Arrow,
    whose work lets other threads run.

    Args:
        most: the most threads; 1 means the calling thread alone.
        check: called between items, in the calling thread. If it raises, the work stops.
    """
    threads = min(cores(), most, len(items))
    if threads < 2:
        alone = []
        for item in items:
            check()
            alone.append(function(item))
        return alone
    from concurrent.futures import ThreadPoolExecutor  # here: the command line imports this module for the rest

    with ThreadPoolExecutor(threads) as pool:
        waiting, found = [pool.submit(function, item) for item in items], []
        try:
            for each in waiting:
                check()
                found.append(each.result())
        finally:
            pool.shutdown(cancel_futures=True)
    return found


def lifeline() -> int | None:
    """Returns the descriptor of the pipe that was given to `mark_own_process`; None if there is none."""
    return _OWN[0] if _OWN else None


def exit_now(code: int) -> NoReturn:
    """Ends this child process at once, without Python's shutdown. Kills its forks and deletes its temporary files."""
    for forked in Forked.made:
        forked.kill()  # one that is stuck in native code does not see its pipe end
    if SCRATCH in os.environ:
        shutil.rmtree(os.environ[SCRATCH], ignore_errors=True)
    os._exit(code)


class Scratch(tempfile.TemporaryDirectory[str]):
    """A `tempfile.TemporaryDirectory` that is deleted in the end even if its process is killed.

    The folder is locked (flock) as long as its process lives, in any container. Each new `Scratch` first deletes this user's
    folders whose process is dead.

    Args:
        label: a part of the folder's name.
    """

    def __init__(self, label: str):
        remove_abandoned()
        super().__init__(prefix=f"{_SCRATCH_PREFIX}{label}-", ignore_cleanup_errors=True)
        lock = os.open(self.name, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_SH)
        self._unlock = weakref.finalize(self, os.close, lock)

    def cleanup(self) -> None:
        super().cleanup()
        self._unlock()


def remove_abandoned() -> None:
    """Deletes this user's `Scratch` folders whose process is dead, except those that changed within the last minute."""
    for path in Path(tempfile.gettempdir()).glob(f"{_SCRATCH_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's; locked: its process lives; removed by another process
            lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
            try:
                status = os.fstat(lock)
                if status.st_uid == os.geteuid() and time.time() - status.st_mtime > _NEW_SECONDS:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


class Forked:
    """A child process made by a fork. It has those methods of `subprocess.Popen` that `ChildProcess` uses."""

    waiting: ClassVar[list["Forked"]] = []
    """The forked children that wait for their use by a `ChildProcess`."""
    made: ClassVar[list["Forked"]] = []
    """All children that this process has forked."""

    def __init__(self, pid: int, stdin: IO[bytes], stdout: IO[bytes], stderr: IO[bytes]):
        self.pid, self.stdin, self.stdout, self.stderr = pid, stdin, stdout, stderr
        self.returncode: int | None = None
        self.made.append(self)

    def kill(self) -> None:
        """Kills the child process unless it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # another thread has just waited for it
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        until = math.inf if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # the user's code has waited for every child: as subprocess.Popen takes it
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
            elif time.monotonic() >= until:
                raise subprocess.TimeoutExpired("fork", timeout or 0.0)
            else:
                time.sleep(0.005)
        return self.returncode


def start(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None, folder: str | None = None
) -> tuple[subprocess.Popen[bytes], Scratch]:
    """Starts a Python process for a `ChildProcess`; returns the process and the folder for the process's temporary files."""
    scratch = Scratch("child")
    temporary = {"TMPDIR": scratch.name, SCRATCH: scratch.name}
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, **temporary, **(environment or {})},
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,  # a terminal's Ctrl-C goes to this process, which decides
    )
    return process, scratch


class ChildProcess:
    """A Python process that takes requests on stdin and answers on stdout, both as JSON lines.

    The process's stdin is closed when this process ends, in whatever way, and then the child ends too. The child's temporary
    files are in a folder that is deleted with it, since libraries leave some behind in a process that is killed or ends at once.

    Args:
        arguments: the arguments of the Python interpreter.
        answer: called with each answer, and with None when no more will come; from a separate thread.
        on_line: called with each line that the child prints to stderr, from another thread.
        ignore: a pattern; lines on stderr whose beginning matches are dropped.
        environment: variables that are set for the child, in addition to this process's variables.
        folder: the child's working directory; None: this process's.
        process: a running process and its folder of temporary files, to be used instead of starting a new process.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        answer: Callable[[Any], object],
        *,
        on_line: Callable[[str], object] = lambda line: None,
        ignore: re.Pattern[str] | None = None,
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
        process: tuple[Forked | subprocess.Popen[bytes], Scratch] | None = None,
    ):
        self._answer, self._on_line, self._ignore = answer, on_line, ignore
        self._lines: collections.deque[str] = collections.deque(maxlen=LAST_LINES)
        self._sending = threading.Lock()
        self._process, self._scratch = process or start(arguments, environment, folder)
        self._printer = threading.Thread(target=self._relay, name="child-lines", daemon=True)
        self._printer.start()
        threading.Thread(target=self._receive, name="child-answers", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self, seconds: float = 0.0) -> int | None:
        """Returns the exit code, negative for a signal; None if the process still runs after this number of seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.returncode

    def send(self, message: Mapping[str, Any], default: Callable[[Any], Any] | None = None) -> None:
        """Sends a request. If the process has ended, nothing is sent; `answer` is called with None.

        Args:
            default: converts objects that JSON does not know, as for json.dumps.
        """
        line = json.dumps(message, default=default).encode() + b"\n"
        with self._sending, contextlib.suppress(BrokenPipeError, ValueError):
            self._stdin.write(line)
            self._stdin.flush()

    def close_stdin(self) -> None:
        """Closes the process's stdin. The process then ends by itself."""
        with self._sending, contextlib.suppress(OSError, ValueError):
            self._stdin.close()

    def close(self, seconds: float) -> None:
        """Closes stdin, waits `seconds` at most, kills the process (unless forked, its group), deletes its temporary files."""
        self.close_stdin()
        self.exit_code(seconds)
        if isinstance(self._process, Forked):
            self._process.kill()  # it is of the group of this process
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended, with all that it started
                os.killpg(self.pid, signal.SIGKILL)  # frozen, or stuck in native code: it, or its replay
        self._process.wait()
        self._printer.join(1.0)
        self._scratch.cleanup()

    def exit_text(self) -> str:
        """Returns how the process ended, as text: "was ended by SIGKILL", "ended with exit code 1"."""
        code = self.exit_code(5.0)
        if code is None:
            return "closed its pipe"
        return f"was ended by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"

    def last_lines(self) -> str:
        """Returns the last lines that the process printed to stderr, as text that can be added to a sentence."""
        self._printer.join(1.0)
        lines = "".join(f"\n  | {line}" for line in self._lines)
        return f"; its last lines:{lines}" if lines else "; it printed nothing"

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _relay(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            for raw in stream:
                line = raw.decode("utf-8", "replace").rstrip("\r\n")
                if self._ignore is not None and self._ignore.match(line):
                    continue
                self._lines.append(line)
                with contextlib.suppress(Exception):  # a broken listener must not block the child's output
                    self._on_line(line)

    def _receive(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream, contextlib.suppress(ValueError):  # cut off in a line: it died
            for raw in stream:
                self._answer(json.loads(raw))
        self._answer(None)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
