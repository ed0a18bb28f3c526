"""The commands of a page's blocks, and how they are run.

A block ```bash is run line by line, in the folder of the page. What a comment right above it says holds for it:

    <!-- not run: REASON -->                      the block is not run
    <!-- not run: REASON: PREFIX | PREFIX -->     its commands that begin so are not; ";" begins another reason
    <!-- exits: 4: PREFIX -->                     these end with that exit code; all others with 0
    <!-- files: NAME -->                          of a yaml, json or python block: it is written to that file first

A ```text block right below is what the block prints: words and signs as they stand, numbers of any value (a date,
a time or a hash is one), "..." anything, white space of any length.
"""

import contextlib
import glob
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

from tests.docs.pages import ROOT

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
REASONS = {
    "a Prefect server": "tests/flows/orchestration and tests/flows/test_deployed.py run these commands on one",
    "a cluster": "Flink: tests/infra/test_flink.py; several workers: tests/tfcore/train/test_distributed.py",
    "make": "its targets are looked up in the Makefile, and CI runs them",
    "an installation": "make dist, make versions; it would change the environment of the tests",
    "another program": "PostgreSQL, TensorFlow Serving: tests/infra, where it is installed",
    "data of your own": "files that the reader has",
    "long trainings": "tests/flows: test_own_task, test_ranking, test_predict_and_monitor, pipeline, on less data",
    "the tutorial": "these are its commands",
    "part of a program": "what stands around it is the reader's",
}
"""Why a block is not run, and what runs it instead."""
FOREIGN = {
    "apt-get": "an installation",
    "docker": "another program",
    "kubectl": "a cluster",
    "make": "make",
    "pip": "an installation",
    "prefect": "a Prefect server",
}
"""Commands that are never run here, by their first word."""


def notes_of(block):
    """[(reason, prefixes)] of a block's `not run`; without prefixes it is the whole block."""
    made = []
    for part in filter(None, re.split(r";\s+", block.notes.get("not run", ""))):
        reason, _, prefixes = part.partition(": ")
        made.append((reason.strip(), tuple(prefix.strip() for prefix in prefixes.split(" | ") if prefix)))
    return made


def skipped(block, command=None):
    """The reason for which a block, or a command of it, is not run; None if it is."""
    for reason, prefixes in notes_of(block):
        if not prefixes or (command is not None and command.startswith(prefixes)):
            return reason
    words = shlex.split(command or "")
    if any(word.startswith("flows.orchestration.") for word in words):
        return "a Prefect server"
    return FOREIGN.get(next((Path(word).name for word in words if not re.match(r"[A-Z_]+=|sudo$", word)), ""))


def exit_code(block, command):
    for part in filter(None, re.split(r";\s+", block.notes.get("exits", ""))):
        code, _, prefixes = part.partition(": ")
        if command.startswith(tuple(prefixes.split(" | "))):
            return int(code)
    return 0


def commands(block):
    """The commands of a block, comments left out: a backslash or an open quote goes on in the next line."""
    made, text = [], ""
    for line in block.code.splitlines():
        text = f"{text}\n{line}" if text else line
        if text.endswith("\\"):
            continue
        try:
            words = shlex.split(text, comments=True)
        except ValueError:
            continue
        if words:
            made.append(_without_comment(text).replace("\\\n", " "))
        text = ""
    assert not text, f"{block.place}: a quote or a backslash is left open: {text!r}"
    return made


def _without_comment(text):
    quote = ""
    for i, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign == "#" and (i == 0 or text[i - 1].isspace()):
            return text[:i].strip()
    return text.strip()


class Shell:
    """Runs the commands of a page, `headway` in this process; a server among them runs until the page ends."""

    def __init__(self, typed, start, home, setenv):
        self._typed, self._start, self._home, self._setenv = typed, start, home, setenv
        self._servers, self._port = [], None

    def run(self, command):
        """Run a command and return its exit code, and what it printed."""
        words = shlex.split(command)
        if self._port:
            command = command.replace("localhost:8501", f"localhost:{self._port}")
        match words:
            case ["source", *_]:
                return SimpleNamespace(returncode=0, stdout="", stderr="")
            case ["cd", folder]:
                os.chdir(Path(folder).expanduser())
                return SimpleNamespace(returncode=0, stdout="", stderr="")
            case ["export", *settings] if "$(" not in command:
                for setting in settings:
                    variable, _, value = setting.partition("=")
                    self._setenv(variable, os.path.expandvars(value))
                return SimpleNamespace(returncode=0, stdout="", stderr="")
            case ["headway", "serve", *arguments]:
                return self._serve(arguments)
            case ["headway", *arguments] if not re.search(r"[|<>$;&]", re.sub(r"'[^']*'|\"[^\"]*\"", "", command)):
                return self._typed(*_expanded(command))
            case _:
                return self._bash(command)

    def _bash(self, command):
        folder = self._home / "bin"
        if not folder.exists():
            folder.mkdir()
            for name, words in (("headway", "-P -m flows.cli"), ("python", "")):
                script = folder / name
                script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
                script.chmod(0o755)
        env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        return subprocess.run(["bash", "-c", command], env=env, capture_output=True, text=True, check=False)

    def _serve(self, arguments):
        server = self._start("-m", "flows.cli", "serve", *arguments, "--port", "0")
        self._servers.append(server)
        told = ""
        for line in server.stdout:
            told += line.decode()
            if said := re.search(r" at http://[\w.]+:(\d+)/", told):  # it answers from then on
                self._port = int(said[1])
                return SimpleNamespace(returncode=0, stdout="", stderr=told)
        return SimpleNamespace(returncode=server.wait(), stdout="", stderr=told + server.stderr.read().decode())

    def close(self):
        for server in self._servers:
            with server.stdin, server.stdout, server.stderr:
                if server.returncode is None:
                    os.kill(server.pid, signal.SIGTERM)
                server.wait(60)


def _expanded(command):
    """The words after `headway`, with ~ and wildcards that are not quoted written out, as a shell does."""
    lexer = shlex.shlex(command, posix=False, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    made = []
    for word in list(lexer)[1:]:
        plain = "".join(shlex.split(word))
        if word[0] not in "'\"" and re.search(r"[*?]", word):
            made += sorted(glob.glob(plain)) or [plain]
        elif word.startswith("~"):
            made.append(str(Path(plain).expanduser()))
        else:
            made.append(plain)
    return made


def checked(command, options_of):
    """What is wrong with a command that is not run, as far as its words tell: its name, options, target, file, extra."""
    words = shlex.split(command)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0], re.DOTALL):
        words = words[1:]
    match words:
        case ["headway", name, *rest]:
            if name.startswith("-"):
                return None if name in ("--help", "--version") else f"headway has no option {name}"
            if name not in options_of:
                return f"headway has no command {name!r}"
            typed = [word.partition("=")[0] for word in rest if word.startswith("--") and word != "--help"]
            return next((f"headway {name} has no option {o}" for o in typed if o not in options_of[name]), None)
        case ["make", *rest]:
            wrong = [word for word in rest if "=" not in word and word not in TARGETS]
            return f"there is no target {wrong[0]}" if wrong else None
        case ["pip", "install", *rest]:
            for names in re.findall(r"headway\S*?\[([\w,]+)\]", " ".join(rest)):
                if wrong := set(names.split(",")) - set(EXTRAS):
                    return f"there is no extra {min(wrong)}"
        case ["python" | ".venv/bin/python", file, *rest] if file.endswith(".py") and "/" in file:
            if not (ROOT / file).is_file():
                return f"there is no file {file}"
            text = (ROOT / file).read_text(encoding="utf-8")
            typed = [word.partition("=")[0] for word in rest if word.startswith("--")]
            return next((f"{file} has no option {option}" for option in typed if f'"{option}"' not in text), None)
    return None


NUMBER = re.compile(r"[+-]?\b\d[\d,.:TZ-]*+%?+\w*+(?! (?:features?|classes)\b)|\b[0-9a-f]{7,}\b|\bnan\b")
"""What differs from machine to machine; how many features and classes a file has does not."""


def differs(shown, printed):
    """The first line of what a page shows that is not printed; None if all of it is, in its order."""
    lines = [_plain(line) for line in printed.splitlines()]
    start = 0
    for line in filter(str.strip, shown.splitlines()):
        pattern = re.compile(".*".join(re.escape(_plain(part)) for part in line.split("...")))
        at = next((i for i in range(start, len(lines)) if pattern.fullmatch(lines[i])), None)
        if at is None:
            return line
        start = at + 1
    return None


def _plain(line):
    return " ".join(NUMBER.sub("0", line).split())


@contextlib.contextmanager
def captured():
    with contextlib.redirect_stdout(io.StringIO()) as out:
        yield out


def emptied(folder):
    """Remove what is in a folder, and keep the folder itself: processes stand in it."""
    for entry in folder.iterdir():
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
