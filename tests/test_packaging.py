"""What pyproject.toml declares: every package that is imported, and every file that is not Python; and the wheel."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = ("headway", "tfcore", "beam_jobs", "flows")
CALLED = {
    "apache_beam": "apache-beam", "google_crc32c": "google-crc32c", "PIL": "pillow", "pkg_resources": "setuptools",
    "tensorflow_metadata": "tensorflow-metadata", "yaml": "pyyaml", "mlflow": "mlflow-skinny",
}  # fmt: skip
"""Imported names that differ from the distribution's."""
BROUGHT = {
    "httpx": "prefect", "anyio": "prefect", "google": "tensorflow-metadata", "absl": "tensorflow", "ml_dtypes": "tensorflow",
    "grpc": "apache-beam", "markupsafe": "jinja2",
    "h11": "uvicorn",
}  # fmt: skip
"""What a declared package brings, and by its own promises keeps."""


def _names(requirements):
    return {re.match(r"[\w.-]+", text)[0].lower() for text in requirements}


def _imported():
    """{top-level module: a file that imports it}, of all four packages."""
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom):
                    names = [node.module]
                found |= {name.partition(".")[0]: str(path.relative_to(ROOT)) for name in names}
    return {name: file for name, file in found.items() if name not in sys.stdlib_module_names | {*PACKAGES}}


def test_every_imported_package_is_declared():
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    declared = _names(project["dependencies"]).union(*(_names(extras[name]) for name in extras if name != "test"))
    for module, file in _imported().items():
        name = BROUGHT.get(module, CALLED.get(module, module)).lower()
        assert name in declared, f"{file} imports {module}, which pyproject.toml does not name"


def test_every_file_of_a_package_is_python_or_declared():
    data = PROJECT["tool"]["setuptools"]["package-data"]
    listed = subprocess.run(["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a checkout")
    for file in listed.stdout.split():
        package, _, rest = file.partition("/")
        patterns = [*data.get(package, ()), *data.get("*", ())]
        assert file.endswith(".py") or any(fnmatch(rest, pattern) for pattern in patterns), file


def test_each_extra_is_known_to_the_command_line_and_to_the_docs():
    from flows.config.extras import EXTRAS, install_command

    extras = {*PROJECT["project"]["optional-dependencies"]} - {
        "all",
        "test",
        "examples",
        "bench",
        "check",
        "dist",
        "docs",
        "browser",
    }
    assert extras == {*EXTRAS}
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    for name in EXTRAS:
        assert f"| `{install_command(name)}` |" in page
    every = PROJECT["project"]["optional-dependencies"]["all"]
    assert every == [f"headway[{','.join(EXTRAS)}]"]


@pytest.mark.long
def test_the_wheel_is_built_and_works_alone(tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: the wheel is built from what git tracks")
    command = [str(ROOT / "infra" / "wheel.sh"), sys.executable, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    names = zipfile.ZipFile(done.stdout.strip().splitlines()[-1]).namelist()
    assert {"flows", "beam_jobs", "tfcore", "headway"} <= {name.split("/")[0] for name in names}
    assert not any(name.startswith(("tests/", "bench/", "examples/")) for name in names)
