"""The op, built by its own command, once for all processes that test; without a compiler, what needs it is skipped."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tfcore.ops.library import FOLDER, library


@pytest.fixture(scope="session")
def op():
    """The module with the ops."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed, and the op in C++ needs it")
    with (FOLDER / "__init__.py").open() as lock:  # another process may be at it: half a minute's work
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run([sys.executable, "-m", "tfcore.ops.compile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HEADWAY_OPS", raising=False)
        found = library()
        assert found is not None
        yield found


@pytest.fixture
def sanitized(request, tmp_path):
    """sanitized("sanitize_pairs.cc", *options) -> that program, built with the op's headers under AddressSanitizer and
    UndefinedBehaviorSanitizer. It is kept for the next run, until a source, an option or the compiler is another."""

    def build(name, *options):
        if shutil.which("g++") is None:
            pytest.skip("g++ is not installed, and this program needs it")
        flags = ["-std=c++17", "-O1", *options, "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
        source, digest = Path(__file__).parent / name, hashlib.sha256(" ".join(flags).encode())
        digest.update(subprocess.run(["g++", "-v"], stderr=subprocess.PIPE, check=True).stderr)
        for path in (source, *sorted(FOLDER.glob("*.h"))):
            data = path.read_bytes()
            digest.update(f"{path.name} {len(data)}\n".encode() + data)
        cache = getattr(request.config, "cache", None)
        folder = tmp_path if cache is None else cache.mkdir("sanitized")
        program = folder / f"{source.stem}-{digest.hexdigest()[:16]}"
        if not program.exists():
            made = tmp_path / source.stem
            done = subprocess.run(
                ["g++", *flags, f"-I{FOLDER}", str(source), "-o", str(made)],
                capture_output=True,
                text=True,
                check=False,
            )
            if "cannot find" in done.stderr and "san" in done.stderr:
                pytest.skip("this g++ comes without sanitizers")
            assert done.returncode == 0, done.stderr
            part = folder / f"{source.stem}-{os.getpid()}"
            shutil.copy(made, part)  # another disk, it may be
            part.rename(program)
        return program

    return build
