"""Which files belong to a user's module, and their digest."""

import hashlib

import pytest

from headway.user_code.files import digest, imported_files

FILES = {
    "model.py": "import os, keras\nimport towers\nfrom parts import deep\n\ndef build():\n    import lazy.inner as l\n",
    "towers.py": "from parts.wide import x\nimport towers\n",
    "parts/__init__.py": "",
    "parts/deep.py": "from . import shared\nfrom ..other import y\nfrom .... import far\n",
    "parts/wide.py": "x = 1\n",
    "parts/shared.py": "def f(:\n",
    "other.py": "",
    "lazy/inner.py": "import data.not_python\n",
    "data/table.csv": "a\n",
    "unused.py": "",
}
USED = ["model.py", "lazy/inner.py", "other.py", "parts/__init__.py", "parts/deep.py", "parts/shared.py"]
USED += ["parts/wide.py", "towers.py"]


@pytest.fixture
def model(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "model.py"


def test_imports_are_followed_within_the_folder(model):
    assert [path.relative_to(model.parent).as_posix() for path in imported_files(model)] == USED


def test_the_digest_changes_with_every_file_that_is_imported_and_with_no_other(model):
    before = digest(model)
    for name in FILES:
        path = model.parent / name
        text = path.read_text()
        path.write_text(text + "# more\n")
        assert (digest(model) != before) == (name in USED), name
        path.write_text(text)
    assert digest(model) == before
    (model.parent / "towers.py").unlink()
    assert digest(model) != before


def test_a_file_that_imports_nothing_beside_it_keeps_the_digest_of_its_bytes(tmp_path):
    (tmp_path / "one.py").write_text("import keras\n")
    assert digest(tmp_path / "one.py") == hashlib.sha256(b"import keras\n").hexdigest()
