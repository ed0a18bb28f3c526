"""The table of docs/reliability.md is that of tests/chaos/table.py, and each test of faults has its rows there."""

import ast

from tests.chaos.table import FAULTS, written
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "reliability.md"
MARKS = ("mark.chaos", "mark.soak")


def written_in(file):
    """(all tests of a file, those of them that `make chaos` or `make soak` runs) by its marks as they are written."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    texts = {name: ast.unparse(node) for name, node in functions.items()}
    of_all = "".join(
        ast.unparse(node) for node in body if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node)
    )
    tests, marked = set(), set()
    for name, node in functions.items():
        if name.startswith("test_"):
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            marks = " ".join([of_all, *decorators, *(texts.get(decorator, "") for decorator in decorators)])
            test = f"{file.relative_to(ROOT).as_posix()}::{name}"
            tests.add(test)
            marked |= {test} if any(mark in marks for mark in MARKS) else set()
    return tests, marked


def test_each_row_names_a_test_that_exists_and_each_test_of_faults_has_its_rows():
    found = [written_in(file) for file in sorted((ROOT / "tests").rglob("test_*.py"))]
    every, marked = (set().union(*part) for part in zip(*found, strict=True))
    assert [*FAULTS.keys() - every] == [], "tests that are gone: their rows go too"
    assert [*marked - FAULTS.keys()] == [], "tests of faults without rows in tests/chaos/table.py"
    rows = [(row.fault, row.where) for faults in FAULTS.values() for row in faults]
    assert all(FAULTS.values()) and len(rows) == len(set(rows)), "each once"


def test_the_page_has_the_table_as_the_tests_have_it():
    page = PAGE.read_text(encoding="utf-8")
    command = "pytest -p tests.chaos.table --faults-into docs/reliability.md tests/docs/test_reliability.py"
    assert page == written(page, {}), f"write the page: .venv/bin/python -m {command}"
