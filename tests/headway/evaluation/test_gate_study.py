"""A small version of bench/gate.py: equal models are hardly ever blocked, and what the gate says it can see is."""

import importlib.util
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
PATH = Path(__file__).parents[3] / "bench" / "gate.py"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("gate_study", PATH)
    module = sys.modules["gate_study"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.TRUTH_ROWS = 30_000
    yield module
    del sys.modules["gate_study"]


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_equal_models_are_hardly_ever_blocked(bench, task):
    cells = bench.study(task, 0.2, (2000,), 20, names=("equal",))
    assert cells[0].blocked <= 0.1 and not cells[0].stated


@pytest.mark.long
@pytest.mark.parametrize("task", ["binary", "regression"])
def test_what_is_stated_beforehand_is_blocked(bench, task):
    cells = bench.study(task, 0.2, (8000,), 4, names=("dropped column", "shifted output", "broken slice"))
    stated = [cell for cell in cells if cell.stated]
    assert {cell.name for cell in stated} >= {"dropped column", "broken slice"}
    assert bench.verdicts(stated)[1] >= 0.9
    lines = bench.table(cells)
    assert len(lines) == 5 and lines[2].startswith("| dropped column | 8,000 | 100% |")
