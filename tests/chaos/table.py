"""A pytest plugin: the faults that the tests measured, as the table of docs/reliability.md.

    pytest -m chaos -p tests.chaos.table                                  # prints it when the tests have ended
    pytest -m chaos -p tests.chaos.table --faults-into docs/reliability.md     # writes it there, between its two marks

Each row is what a test gave to the fixture `row`. A row whose test did not run is kept as it was.
"""

from __future__ import annotations

import re
from pathlib import Path

HEAD = "| fault | what is seen | true state after | what the next run repeats |\n| --- | --- | --- | --- |\n"
BEGIN, END = "<!-- faults: written by make chaos -->\n", "<!-- faults: end -->\n"
_FOUND: dict[str, str] = {}
"""The table's lines by fault."""


def pytest_addoption(parser):
    parser.addoption("--faults-into", metavar="FILE", help="write the table of faults into this Markdown file")


def pytest_runtest_logreport(report):
    if report.when == "call" and report.passed:
        for name, value in report.user_properties:
            if name == "fault":
                _FOUND[value["fault"]] = _line(value)


def _line(value: dict) -> str:
    return f"| {value['fault']} | {value['seen']} | {_seconds(value['seconds'])} | {value['repeats']} |\n"


def _seconds(value) -> str:
    """A number of seconds as text; a text as it is."""
    return value if isinstance(value, str) else f"{value:.0f} s" if value >= 1 else "under 1 s"


def pytest_terminal_summary(terminalreporter, config):
    if not _FOUND:
        return
    lines = dict(_FOUND)
    if target := config.getoption("--faults-into"):
        file = Path(target)
        before, _, rest = file.read_text(encoding="utf-8").partition(BEGIN)
        old, _, after = rest.partition(END)
        known = {match[1]: line for line in old.splitlines(True)[2:] if (match := re.match(r"\| (.*?) \|", line))}
        lines = known | lines
        file.write_text(before + BEGIN + HEAD + "".join(lines.values()) + END + after, encoding="utf-8")
    terminalreporter.write_line(HEAD + "".join(lines.values()))
