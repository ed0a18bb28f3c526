"""bench/mutants.py and bench/branches.py on a module of one function, of which a test tells most."""

import ast
import importlib
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
MODULE = '''
def larger(a: int, b: int) -> int:
    """One more than a, where it is larger than b."""
    return a + 1 if a > b else b
'''
TESTS = """
from thing.sizes import larger

def test_larger():
    assert (larger(1, 3), larger(5, 3)) == (3, 6)  # nothing tells what becomes of equal ones
"""
CUTS = "cuts = (rows[i] for i in range(n))"


@pytest.fixture
def mutants(monkeypatch):
    before = {*sys.modules}
    monkeypatch.syspath_prepend(str(BENCH))
    module = importlib.import_module("mutants")
    monkeypatch.setattr(module, "AREAS", {"sizes": (("thing",), ("tests",))})
    yield module
    for name in {"mutants", "branches", "common"} - before:
        sys.modules.pop(name, None)


@pytest.fixture
def checkout(tmp_path):
    for name, text in {"thing/__init__.py": "", "thing/sizes.py": MODULE, "tests/test_sizes.py": TESTS}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    return tmp_path


def faults(mutants, text):
    """The function's lines with each fault, without the first and the last."""
    source = f"def function(rows, n):\n    {text}\n    return n"
    numbers = range(len([*mutants.faults(ast.parse(source))]))
    made = [mutants.Mutant("sizes", "", source, number, "").made()[0] for number in numbers]
    return ["".join(line.strip() for line in module.splitlines()[1:-1]) for module in made]


@pytest.mark.long
def test_what_a_test_tells_is_killed_and_the_rest_survives(mutants, checkout, capsys):
    saved = checkout / "saved.json"
    mutants.main(["--save", str(saved)], checkout)
    said = capsys.readouterr().out
    assert "| sizes | 4 | 3 | 75% |" in said and "| all | 4 | 3 | 75% |" in said
    assert said.endswith("Survivors:\nthing/sizes.py:4 operator: a > b -> a >= b\n")
    assert "constant: 1 -> 2   in return a + 1 if a > b else b   killed by tests/test_sizes.py::test_larger" in said
    assert sorted(json.loads(saved.read_text()).values()) == [False, True, True, True]
    assert (checkout / "thing" / "sizes.py").read_text() == MODULE

    (checkout / "tests" / "test_sizes.py").write_text(TESTS + "    assert larger(3, 3) == 3\n")
    mutants.main(["--before", str(saved)], checkout)
    end = f"Of 4 mutants of {saved} 3 were killed then and 4 now\n"
    assert capsys.readouterr().out.endswith(f"Survivors:\n\n{end}")


@pytest.mark.long
def test_tests_that_fail_without_a_fault_and_modules_of_another_checkout_are_refused(mutants, checkout):
    (checkout / "tests" / "test_sizes.py").write_text(TESTS + "    assert larger(3, 3) == 4\n")
    with pytest.raises(RuntimeError, match=r"sizes: without a fault fails tests/test_sizes\.py"):
        mutants.main([], checkout)
    (checkout / "tests" / "test_sizes.py").write_text(
        f"import sys\nfrom pathlib import Path\nsys.path.insert(0, {str(checkout)!r})\n" + TESTS
    )
    with pytest.raises(RuntimeError, match="modules of another checkout were imported"):
        mutants.main([], checkout)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("n = rows[0] + 1", ["n = rows[0] - 1", "n = rows[1] + 1", "n = rows[0] + 2"]),
        ("n = rows[1:n]", ["n = rows[1 + 1:n]", "n = rows[1:n + 1]"]),
        ("n = [row for row in rows if row]", ["n = (row for row in rows if row)", "n = [row for row in rows if not row]"]),
        ("n += n < len(rows) <= n", ["n -= n < len(rows) <= n", "n += n <= len(rows) <= n", "n += n < len(rows) < n"]),
        ("n = sorted(rows)", ["n = sorted(rows, reverse=True)"]),
        ("n = max(rows)", ["n = min(rows)"]),
        ("while n: break", ["while not n:break", "while n:pass"]),
        ("if n: return rows", ["if not n:return rows", "if n:pass"]),
        (f"{CUTS}\n    for row in cuts: del row", [f"{CUTS}for row in cuts:rows = rowdel row"]),
        ("n: Literal[1] = n", []),
        ("raise ValueError(f'{n + 1} rows')", []),
        ("log.info(n + 1)", []),
        ("n = rows + f'{n + 1}'", []),
        ("os.kill(n, 0)", []),
        ("assert n > 1, rows[0]", []),
    ],
)  # fmt: skip
def test_the_faults_of_a_statement(mutants, text, made):
    assert faults(mutants, text) == made


def test_the_choice_does_not_depend_on_files_and_lines(mutants, checkout):
    names = [mutant.name for mutant in mutants.chosen(checkout, "sizes", 3, seed=1)]
    assert len(names) == 3 and names != [mutant.name for mutant in mutants.chosen(checkout, "sizes", 3, seed=5)]
    (checkout / "thing" / "other.py").write_text("\n\n" + MODULE)
    (checkout / "thing" / "sizes.py").unlink()
    assert [mutant.name for mutant in mutants.chosen(checkout, "sizes", 3, seed=1)] == names


@pytest.mark.long
def test_branches_that_no_test_enters_are_counted(mutants, checkout, capsys):
    try:
        metadata.version("coverage")
    except metadata.PackageNotFoundError:
        pytest.skip("needs coverage")
    branches = importlib.import_module("branches")
    (checkout / "thing" / "sizes.py").write_text(
        MODULE.replace("return a + 1 if a > b else b", "\n    if a > b:\n        return a + 1\n    return b")
    )
    (checkout / "tests" / "test_sizes.py").write_text(
        TESTS.replace("(larger(1, 3), larger(5, 3)) == (3, 6)", "larger(1, 3) == 3")
    )
    branches.main(["--save", str(checkout / "saved.json")], checkout)
    assert "| thing/sizes.py | 1 | 2 | 50.0% |" in capsys.readouterr().out
    (checkout / "saved.json").write_text(json.dumps({"thing/sizes.py": [2, 2], "thing/gone.py": [0, 8]}))
    branches.main(["--before", str(checkout / "saved.json")], checkout)
    assert "less: thing/sizes.py 2 | 2 | 100.0% -> 1 | 2 | 50.0%" in capsys.readouterr().out
