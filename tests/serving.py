"""`headway serve` as a process of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace


@contextlib.contextmanager
def serving(folder: Path, *options: str, env: Mapping[str, str] | None = None) -> Iterator[SimpleNamespace]:
    """The process, the document that it printed (`text`, `url`, `version`): it answers. It is killed at the end."""
    command = [sys.executable, "-P", "-m", "flows.cli", "serve", str(folder), "--port", "0", "--json", *options]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            text = ""
            while not text.endswith("}\n"):
                text += (line := process.stdout.readline())
                assert line, process.stderr.read()
            started = json.loads(text)
            yield SimpleNamespace(process=process, text=text, url=started["url"], version=started["version"])
        finally:
            process.kill()
