"""A pytest plugin: what the tests of faults measured, as the tables of docs/reliability.md.

    pytest -m chaos -p tests.chaos.table                             # prints them when the tests have ended
    pytest -m chaos -p tests.chaos.table --faults-into docs/reliability.md    # writes them there, between their marks

A row is a user property of a test, `faults` or `soak`: a list of its cells. A row whose test did not run is kept as it was.
"""

from __future__ import annotations

from pathlib import Path

TABLES = {
    "faults": ["fault", "what is seen", "true state after", "what the next run repeats"],
    "soak": ["fault", "runs", "how they ended", "true state after, at most"],
}
_FOUND: dict[str, dict[str, str]] = {name: {} for name in TABLES}
"""By table: its lines by their first cells."""


def pytest_addoption(parser):
    parser.addoption("--faults-into", metavar="FILE", help="write the tables of faults into this Markdown file")


def pytest_runtest_logreport(report):
    if report.when == "call" and report.passed:
        for name, cells in report.user_properties:
            if name in TABLES:
                _FOUND[name][str(cells[0])] = _line(cells)


def _line(cells) -> str:
    return f"| {' | '.join(map(str, cells))} |\n"


def pytest_terminal_summary(terminalreporter, config):
    for name, lines in _FOUND.items():
        if not lines:
            continue
        head = _line(TABLES[name]) + _line(["---"] * len(TABLES[name]))
        if target := config.getoption("--faults-into"):
            _write(Path(target), name, head, lines)
        terminalreporter.write_line("\n" + head + "".join(lines.values()))


def _write(file: Path, name: str, head: str, lines: dict[str, str]) -> None:
    begin, end = f"<!-- {name}: written by the tests -->\n", f"<!-- {name}: end -->\n"
    before, _, rest = file.read_text(encoding="utf-8").partition(begin)
    old, _, after = rest.partition(end)
    known = {line.split("|")[1].strip(): line for line in old.splitlines(True) if line.startswith("|")}
    rows = "".join(line for cell, line in (known | lines).items() if cell != TABLES[name][0] and cell != "---")
    file.write_text(before + begin + head + rows + end + after, encoding="utf-8")
