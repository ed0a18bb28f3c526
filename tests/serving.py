"""`headway serve` as a process of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace


def _start(*words: str, env: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-P", *words], env=env, **pipes)


@contextlib.contextmanager
def serving(
    folder: Path, *options: str, env: Mapping[str, str] | None = None, start: Callable = _start
) -> Iterator[SimpleNamespace]:
    """The process, the document that it printed (`text`, `url`, `version`): it answers. It is killed at the end.

    Args:
        start: such as a fork server's, whose process has the imports already.
    """
    process = start("-m", "flows.cli", "serve", str(folder), "--port", "0", "--json", *options, env=env)
    with process.stdin, process.stdout, process.stderr:
        try:
            text = ""
            while not text.endswith("}\n"):
                text += (line := process.stdout.readline().decode())
                assert line, process.stderr.read().decode()
            started = json.loads(text)
            yield SimpleNamespace(process=process, text=text, url=started["url"], version=started["version"])
        finally:
            if process.returncode is None:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
