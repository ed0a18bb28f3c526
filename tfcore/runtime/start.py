"""Begins the process of `tfcore.runtime.worker`, and forks from it the process that will replay the export.

    python -P -u tfcore/runtime/start.py --replay tensorflow keras      # the modules to import before the first request

A replay has TensorFlow and NumPy, and nothing of Keras or Headway. Importing TensorFlow takes most of two seconds of a
processor, so both processes get one import: it comes first and alone, and then the process forks, before an op has run and
a thread of Headway has begun. The fork waits for the request of `tfcore.export.replay.replay_process`.
"""

import contextlib
import gc
import os
import runpy
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import IO, Any

LATER = ("keras", "tf_keras")
"""TensorFlow finds them, for the names that it has of theirs, and takes them along only if they can be imported."""
OPTIONAL = ("h5py", "pandas", "scipy")
"""What TensorFlow's own old Keras imports where it is installed."""
CUBLAS, DRIVER = "--xla_gpu_enable_triton_gemm=false", Path("/dev/nvidiactl")
"""With XLA's own kernels for products a step in TF32 took 6 to 20 times as long as with cuBLAS's, on one H100. The flag is read
when TensorFlow is imported."""
UNUSED = "tensorflow._api.v2.compat"
"""The names of TensorFlow 1, 240 modules: imported by the first use of `tf.compat`."""


class _AtFirstUse(Loader):
    """Executes a module when somebody asks for a name that it does not have yet. `importlib.util.LazyLoader` does so for any
    name, and autograph asks each module for its file."""

    def __init__(self, loader: Any):
        self._loader, self._lock, self._ran = loader, threading.RLock(), False

    def exec_module(self, module: ModuleType) -> None:
        def found(name: str) -> Any:
            with self._lock:
                if not self._ran and not name.startswith("__"):
                    self._ran = True
                    self._loader.exec_module(module)
            try:
                return vars(module)[name]
            except KeyError:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name) from None

        vars(module)["__getattr__"] = found


class _Later(MetaPathFinder, Loader):
    """Keeps packages from being imported, for a while."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in OPTIONAL:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        if fullname == UNUSED and (spec := PathFinder.find_spec(fullname, path, target)) is not None:
            assert spec.loader is not None
            spec.loader = _AtFirstUse(spec.loader)
            return spec
        if fullname not in LATER or (spec := PathFinder.find_spec(fullname, path, target)) is None:
            return None
        spec.loader = self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        raise ModuleNotFoundError(f"No module named {spec.name!r}", name=spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Is never called, since `create_module` raises."""


def import_tensorflow() -> bool:
    """Import TensorFlow without Keras; whether it could be imported."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    later = _Later()
    sys.meta_path.insert(0, later)
    gc.disable()  # it would look through half a million objects again and again, and find nothing
    try:
        with warnings.catch_warnings():
            if not sys.warnoptions:
                warnings.simplefilter("ignore")
            import tensorflow  # noqa: F401
        return True
    except Exception:  # the worker meets it again, and answers with it
        return False
    finally:
        gc.freeze()
        gc.enable()
        sys.meta_path.remove(later)


def fork_replay(script: str) -> tuple[int, IO[bytes], IO[bytes], IO[bytes]]:
    """Fork the process that runs the replay's script: (its pid, the files that are its stdin, stdout and stderr)."""
    (stdin, to), (out, stdout), (err, stderr) = (os.pipe() for _ in range(3))
    files = 0
    with contextlib.suppress(OSError, KeyError):
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        files = int(status["RssFile"].split()[0])
    with warnings.catch_warnings():
        # Python 3.12 and later warn that another thread, such as one of OpenBLAS, may hold a lock. No op has run, so that
        # none does, and the child only loads a model and predicts
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            for number, descriptor in enumerate((stdin, stdout, stderr)):
                os.dup2(descriptor, number)
            for descriptor in (stdin, to, out, stdout, err, stderr):
                os.close(descriptor)
            os.chdir(tempfile.gettempdir())
            sys.argv = [script]
            runpy.run_path(script, {"FORKED_WITH": files}, run_name="__main__")
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)
    for descriptor in (stdin, stdout, stderr):
        os.close(descriptor)
    return pid, os.fdopen(to, "wb"), os.fdopen(out, "rb"), os.fdopen(err, "rb")


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        # a terminal, a supervisor: they signal every process, and the parent decides; it ends this one by the pipe
        signal.signal(number, signal.SIG_IGN)
    if DRIVER.exists():
        os.environ["XLA_FLAGS"] = f"{CUBLAS} {os.environ.get('XLA_FLAGS', '')}"
    forked, asked = None, "--replay" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--replay"]
    if asked and "tensorflow" in sys.argv and "tensorflow" not in sys.modules and import_tensorflow():
        forked = fork_replay(str(Path(__file__).parent.parent / "export" / "replay" / "replay_main.py"))
    from headway.process import Forked
    from tfcore.runtime import worker

    if forked is not None:
        Forked.waiting.append(Forked(*forked))
    worker.main()


if __name__ == "__main__":
    main()
