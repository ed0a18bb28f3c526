"""Compiles every .cc of this folder into one library for the installed TensorFlow.

    python -m tfcore.ops.compile              # does nothing if the library is there already
    python -m tfcore.ops.compile --force

Needs g++ (or what CXX names) and TensorFlow, whose package brings its headers. Takes about half a minute.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from headway.errors import ConfigError, HeadwayError
from tfcore.ops.library import BUILT, OPTIONS, op_path, sources, tensorflow_version


def build(*, force: bool = False) -> Path:
    """Compile the library unless it exists, and delete older ones for this TensorFlow. Returns the library's path.

    Raises:
        ConfigError: there is no compiler, or the library cannot be written.
        HeadwayError: the sources do not compile.
    """
    target = op_path()
    if target.exists() and not force:
        return target
    compiler = shlex.split(os.environ.get("CXX") or "g++")
    if shutil.which(compiler[0]) is None:
        raise ConfigError(
            f"there is no {compiler[0]}; Headway works without its op, only slower in ranking",
            fix="apt-get install g++, or name a compiler: CXX=/path/to/g++",
        )
    import tensorflow as tf

    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    command = [*compiler, *OPTIONS, *tf.sysconfig.get_compile_flags(), *map(str, sources()), "-o", str(temporary)]
    try:
        BUILT.mkdir(exist_ok=True)
        done = subprocess.run([*command, *tf.sysconfig.get_link_flags()], capture_output=True, text=True, check=False)
        if done.returncode:
            errors = "\n".join(line for line in done.stderr.splitlines() if "error" in line)[:2000]
            raise HeadwayError(
                f"{shlex.join(compiler)} could not compile the ops:\n{errors or done.stderr[-2000:]}",
                where=str(sources()[0].parent),
                fix="use g++ 9 or newer; Headway works without them",
            )
        temporary.replace(target)
    except OSError as error:
        raise ConfigError(
            f"cannot be written: {(error.strerror or str(error)).lower()}",
            where=str(BUILT),
            fix="build as the user who installed headway",
        ) from None
    finally:
        temporary.unlink(missing_ok=True)
    for old in BUILT.glob(f"headway_ops-{tensorflow_version()}-*.so"):
        if old != target:
            old.unlink(missing_ok=True)
    return target


def main() -> int:
    options = argparse.ArgumentParser(
        prog="python -m tfcore.ops.compile", description="Compile Headway's TensorFlow ops."
    )
    options.add_argument("--force", action="store_true", help="compile even if the library exists")
    arguments = options.parse_args()
    try:
        print(build(force=arguments.force))
    except HeadwayError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
