"""Headway's commands as Python functions, for notebooks, scripts and tests; `import headway` has them.

    import headway

    record = headway.run("flights", until="2013-03", set={"training.steps": 200})
    record["state"], record["version"]                       # "promoted", 1
    headway.command("predict", "flights", input="2013-04.parquet", output="scored")
    headway.command("runs", "flights")                       # any command that has --json

Each call is a process of its own that begins like the `headway` command: the folders and modules of the caller, whatever
their names, are not in its way, and neither threads nor seeds of the caller change.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from headway.errors import KINDS, HeadwayError

__all__ = ["command", "run"]


def command(name: str, *arguments: str | Path, progress: Callable[[str], None] | None = None, **options: Any) -> Any:
    """Call `headway NAME ARGUMENTS OPTIONS --json` and return what it prints.

    Args:
        name: such as "run"; `headway --help` lists them.
        arguments: what the command takes without a name; mostly the folder of pipeline.yaml.
        progress: takes each line that the command prints beside its answer, such as a warning; None: it goes to `sys.stderr`.
            `headway.open(...).run(progress=...)` has the progress of stages.
        options: the command's options, such as until="2013-03" and dry_run=True. A list repeats an option; a mapping
            repeats it as KEY=VALUE.

    Returns:
        What the command prints as JSON, such as the record of a run, whatever the gate said of its candidate.

    Raises:
        ConfigError, DataError, StoreError, Locked, Cancelled: as the command line says it.
        HeadwayError: the command ended by a bug, or was killed.
    """
    line = [sys.executable, "-P", "-m", "flows.cli", name, *map(str, arguments), *_typed(options), "--json"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stderr
        lines: list[str] = []
        report = progress or (lambda line: print(line, file=sys.stderr))
        relay = threading.Thread(target=_relay, args=(process.stderr, lines, report), daemon=True)
        relay.start()
        try:
            output = process.stdout.read()
            code = process.wait()
        except BaseException:  # Ctrl-C, or a notebook's stop button: what was done is kept
            process.terminate()
            process.wait()
            raise
        finally:
            relay.join()
    try:
        answer = json.loads(output)
    except ValueError:
        problem = "\n".join(lines) or f"headway {name} ended with exit code {code} and no answer"
        answer = {"error": {"problem": problem}}
    if code and isinstance(answer, dict) and isinstance(error := answer.get("error"), dict):
        by_code = next((kind for kind in KINDS.values() if kind.exit_code == code), HeadwayError)
        kind = KINDS.get(str(error.get("kind")), by_code)
        raise kind(error["problem"], where=error.get("where"), fix=error.get("fix"))
    return answer


def run(pipeline: str | Path = ".", **options: Any) -> dict[str, Any]:
    """Bring a pipeline from raw files to a promoted model; return the run's record. See `command` and `headway run -h`."""
    return dict(command("run", pipeline, **options))


def _typed(options: Mapping[str, Any]) -> list[str]:
    """Options in the form of a command line."""
    words: list[str] = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
        elif isinstance(value, Mapping):
            words += [word for key, item in value.items() for word in (option, f"{key}={_text(item)}")]
        else:
            several = value if isinstance(value, (list, tuple)) else [value]
            words += [word for item in several for word in (option, _text(item))]
    return words


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (bool, dict, list, tuple)) or value is None else str(value)


def _relay(stream: IO[str], lines: list[str], progress: Callable[[str], None]) -> None:
    for line in stream:
        lines.append(line.rstrip("\n"))
        progress(lines[-1])
