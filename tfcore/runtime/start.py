"""Begins the process of `tfcore.runtime.worker`, and forks from it the process that will replay the export.

    python -P -u tfcore/runtime/start.py --replay tensorflow keras      # the modules to import before the first request

The replay process has TensorFlow and NumPy, and nothing of Headway; importing Keras fails there. Importing TensorFlow takes
seconds of processor time, so both processes share one import. It comes first; then the process forks, before any op has run
and before Headway has started a thread. The fork waits for the request of `tfcore.export.replay`.
"""

import gc
import os
import runpy
import signal
import sys
import tempfile
import warnings
from pathlib import Path
from typing import IO, Any

CUBLAS, DRIVER = "--xla_gpu_enable_triton_gemm=false", Path("/dev/nvidiactl")
"""The flag makes XLA use cuBLAS for matrix products: with XLA's own kernels a training step in TF32 took 6 to 20 times as long,
on one H100. It is read when TensorFlow is imported."""
NOT_FOR_KERAS = {"IPython", "matplotlib", "pandas", "sklearn"}
"""Packages that Keras imports where they are installed, for functions that Headway does not call. They would double the time
of the import."""


def import_tensorflow() -> bool:
    """Import TensorFlow; returns whether it could be imported."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    gc.disable()  # it would look through half a million objects again and again, and find nothing
    absent: dict[str, Any] = dict.fromkeys(NOT_FOR_KERAS - sys.modules.keys())
    sys.modules.update(absent)  # None: an import of it fails, as where it is not installed
    try:
        with warnings.catch_warnings():
            if not sys.warnoptions:
                warnings.simplefilter("ignore")
            import tensorflow  # noqa: F401
        return True
    except Exception:  # the worker meets it again, and answers with it
        return False
    finally:
        for name in absent:
            del sys.modules[name]
        gc.enable()


def fork_replay(script: str) -> tuple[int, IO[bytes], IO[bytes], IO[bytes]]:
    """Fork the process that runs the replay script at path `script`; returns its pid, and files for its stdin, stdout, stderr."""
    (stdin, to), (out, stdout), (err, stderr) = (os.pipe() for _ in range(3))
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
            runpy.run_path(script, run_name="__main__")
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
        forked = fork_replay(str(Path(__file__).parent.parent / "export" / "replay_main.py"))
    from headway.process import Forked
    from tfcore.runtime import worker

    if forked is not None:
        Forked.waiting.append(Forked(*forked))
    worker.main()


if __name__ == "__main__":
    main()
