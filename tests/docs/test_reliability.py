"""The table of docs/reliability.md is that of tests/chaos/table.py, and each test of faults has its rows there."""

import ast

from tests.chaos.table import FAULTS, written
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "reliability.md"


def test_each_row_names_a_test_that_exists_and_each_test_of_faults_has_its_rows():
    files = {file.name: ast.parse(file.read_text(encoding="utf-8")).body for file in ROOT.glob("tests/chaos/test_*.py")}
    functions = {f"{name}::{node.name}" for name, body in files.items() for node in body if hasattr(node, "name")}
    assert {f"tests/chaos/{function}" for function in functions if "::test_" in function} == FAULTS.keys()
    rows = [(row.fault, row.where) for faults in FAULTS.values() for row in faults]
    assert all(FAULTS.values()) and len(rows) == len(set(rows)), "each once"


def test_the_page_has_the_table_as_the_tests_have_it():
    page = PAGE.read_text(encoding="utf-8")
    command = "pytest -p tests.chaos.table --faults-into docs/reliability.md tests/docs/test_reliability.py"
    assert page == written(page, {}), f"write the page: .venv/bin/python -m {command}"
