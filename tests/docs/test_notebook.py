"""The notebook in docs/ runs, on data that it makes itself, and what it shows is what the page has.

HEADWAY_RENEW_GOLDEN=1 writes the outputs of this run into it.
"""

import os
import re
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parent.parent.parent / "docs" / "notebook.ipynb"


@pytest.mark.long
def test_the_notebook_runs_and_its_page_has_every_output(tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient").NotebookClient
    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOK.parent.parent))
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")  # what TensorFlow's C++ prints is of the machine
    before = nbformat.read(NOTEBOOK, as_version=4)
    ran = nbformat.read(NOTEBOOK, as_version=4)
    client(ran, timeout=None, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    for cell in ran.cells:
        cell.metadata.pop("execution", None)
        cell.outputs = [o for o in cell.get("outputs", []) if o.get("name") != "stderr"] if "outputs" in cell else []
        if cell.cell_type != "code":
            del cell["outputs"]
    if os.environ.get("HEADWAY_RENEW_GOLDEN"):
        text = nbformat.writes(ran).replace(f"{tmp_path}/", "")
        assert str(Path.home()) not in text and "/tmp" not in text
        NOTEBOOK.write_text(text + "\n")
        before = nbformat.reads(text, as_version=4)
    for old, new in zip(before.cells, ran.cells, strict=True):
        shown, page = ["".join(_texts(cell)) for cell in (new, old)]
        assert _words(shown) == _words(page), f"{old.source}\nshows\n{shown}\nand the page has\n{page}"


def _texts(cell):
    """What a cell shows as plain text."""
    for output in cell.get("outputs", []):
        yield output.get("text") or output.get("data", {}).get("text/plain", "")


def _words(text):
    """The words of an output; numbers, times, paths and the names of runs differ between machines and versions."""
    text = re.sub(r"\S*/\S*|\b\d{8}-\d{6}-[0-9a-f]+\b", "", text)
    return re.findall(r"[a-zA-Z_]{3,}", text)
