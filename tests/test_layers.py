"""What each package may import, how long a module may be, and that importing one loads nothing heavy.

The floors within a package stand in pyproject.toml, as contracts that `make check` holds.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALLOWED = {
    "headway": {"headway"},
    "beam_jobs": {"beam_jobs", "headway"},
    "tfcore": {"tfcore", "headway"},
    "flows": {"flows", "tfcore", "beam_jobs", "headway"},
}
EXCEPTIONS = {(ROOT / "headway" / "__init__.py", module) for module in ("flows", "flows.api")}
"""`import headway` hands out the public Python API lazily."""
HEAVY = {"tensorflow": "tfcore", "keras": "tfcore", "apache_beam": "beam_jobs", "prefect": "flows"}


def _imports(path: Path) -> list[tuple[str, bool]]:
    """(module, whether at the top of the file) of every import."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = {id(node) for node in tree.body}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) in top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            found.append((node.module or "", id(node) in top))
    return found


def _modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_only_go_down(package):
    for path in _modules(package):
        for module, _ in _imports(path):
            first = module.split(".")[0]
            if first in ALLOWED and (path, module) not in EXCEPTIONS:
                assert first in ALLOWED[package], f"{path.relative_to(ROOT)} imports {module}"
            if first in HEAVY:
                assert HEAVY[first] == package, f"{path.relative_to(ROOT)} imports {module}"


def test_tests_stand_where_their_modules_do():
    for package in ALLOWED:
        for folder in {path.parent for path in (ROOT / "tests" / package).rglob("test_*.py")}:
            assert (ROOT / folder.relative_to(ROOT / "tests")).is_dir(), folder


def test_modules_stay_small():
    sizes = {p: len(p.read_text(encoding="utf-8").splitlines()) for package in ALLOWED for p in _modules(package)}
    assert max(sizes.values()) <= 700, max(sizes, key=lambda p: sizes[p])


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("headway", ["tensorflow", "apache_beam", "prefect", "keras"]),
        ("flows.cli.app", ["tensorflow", "apache_beam", "prefect", "keras", "pyarrow", "pydantic", "numpy"]),
        ("flows.cli.runs", ["tensorflow", "apache_beam", "prefect", "keras"]),
        ("flows.cli.operations", ["tensorflow", "apache_beam", "prefect", "keras"]),
        ("flows.api", ["tensorflow", "apache_beam", "prefect", "keras"]),
        ("flows.pipeline.context", ["tensorflow", "apache_beam", "prefect", "keras"]),
        ("flows.pipeline.dag", ["tensorflow", "apache_beam", "prefect", "keras"]),
        ("beam_jobs", ["tensorflow", "prefect", "apache_beam", "keras"]),
        ("beam_jobs.ingest.stage", ["tensorflow", "prefect", "apache_beam", "keras"]),
        ("beam_jobs.predict.stage", ["tensorflow", "prefect", "apache_beam", "keras"]),
        ("flows.pipeline.predict", ["tensorflow", "apache_beam", "prefect", "keras"]),
        ("tfcore", ["tensorflow", "apache_beam", "prefect", "keras"]),
        ("tfcore.train.auto, tfcore.train.config", ["tensorflow", "apache_beam", "prefect", "keras"]),
        ("tfcore.export.replay, tfcore.export.signatures", ["tensorflow", "apache_beam", "prefect", "keras"]),
        ("tfcore.runtime.tensorflow_process, tfcore.runtime.worker", ["tensorflow", "apache_beam", "prefect", "keras"]),
        ("headway.evaluation.gate", ["tensorflow", "apache_beam", "prefect", "keras"]),
    ],
)
def test_importing_a_package_loads_nothing_heavy_that_it_does_not_own(module, forbidden):
    code = f"import sys, {module}; print([m for m in {forbidden!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_needs_no_heavy_import():
    code = (
        "import sys, flows.cli.app\n"
        "try: flows.cli.app.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = ('numpy', 'pyarrow', 'pydantic', 'tensorflow', 'apache_beam', 'prefect', 'rich')\n"
        "bad = [m for m in heavy if m in sys.modules]\n"
        "sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "rollback" in done.stdout


def test_the_map_names_every_folder():
    text = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    folders = {path.parent.relative_to(ROOT).as_posix() for package in ALLOWED for path in _modules(package)}
    assert not [folder for folder in sorted(folders) if f"| `{folder}/` |" not in text]
