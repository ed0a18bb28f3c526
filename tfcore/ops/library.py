"""The library of compiled ops: its path, and loading it.

    library()                # the module with the ops, or None: not built for these sources and this TensorFlow
    op_path().exists()       # whether the library is built, without importing TensorFlow

The file's name has TensorFlow's version and a digest of the sources. So a library is never loaded with another TensorFlow,
nor after its sources have changed. With HEADWAY_OPS=off a library is not used.
"""

import hashlib
import os
import warnings
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
BUILT = FOLDER / "_built"
SWITCH = "HEADWAY_OPS"
OPTIONS = ["-O3", "-ffp-contract=off", "-shared", "-fPIC", "-w"]
"""The options of the compiler."""


def sources() -> list[Path]:
    """Returns the C++ files to compile, in order."""
    return sorted(FOLDER.glob("*.cc"))


def tensorflow_version() -> str:
    """Returns the version of the installed TensorFlow without importing it; "none" if it is not installed."""
    for name in ("tensorflow", "tensorflow-cpu", "tf-nightly"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "none"


@lru_cache(maxsize=1)
def op_path() -> Path:
    """Returns the path of the library for these sources and this TensorFlow, whether it is built or not."""
    digest = hashlib.sha256(" ".join(OPTIONS).encode())
    for path in sorted([*sources(), *FOLDER.glob("*.h")]):
        data = path.read_bytes()
        digest.update(f"{path.name} {len(data)}\n".encode() + data)
    return BUILT / f"headway_ops-{tensorflow_version()}-{digest.hexdigest()[:16]}.so"


def enabled() -> bool:
    """Returns whether the environment variable HEADWAY_OPS lets a built library be used."""
    return os.environ.get(SWITCH, "").lower() not in ("off", "0", "no", "false")


def library() -> Any | None:
    """Returns the module with the ops. None if they are not built, switched off, or cannot be loaded (one warning)."""
    return _load(op_path()) if enabled() and op_path().exists() else None


@lru_cache(maxsize=1)
def _load(path: Path) -> Any | None:
    import tensorflow as tf

    try:
        return tf.load_op_library(str(path))
    except (tf.errors.OpError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        warnings.warn(
            f"{path.name} does not load, so TensorFlow's own ops do its work: {reason}; "
            "build it anew with python -m tfcore.ops.compile --force",
            stacklevel=2,
        )
        return None
