"""A user's module that imports files beside it."""

import importlib
import subprocess
import sys

import pytest

from headway.errors import ConfigError
from headway.user_code.loading import load_function


def written(folder, **files):
    for name, text in files.items():
        path = folder / (name.replace("__in__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "mine.py"


MINE = """
import dataclasses
import helpers
import parts.deep as deep
from parts import wide
from helpers import SIZE

@dataclasses.dataclass
class Facts:
    size: int = SIZE

def build():
    import lazy
    from parts.deep import DEEP
    return [helpers.SIZE, Facts().size, wide.WIDE, deep.DEEP, DEEP, lazy.LATE]
"""


def project(folder, size):
    return written(
        folder,
        mine=MINE,
        helpers=f"SIZE = {size}\n",
        lazy="from helpers import SIZE\nLATE = SIZE + 1\n",
        parts__in____init__="from .wide import WIDE\n",
        parts__in__wide="import helpers\nWIDE = helpers.SIZE * 2\n",
        parts__in__deep="from . import wide\nDEEP = wide.WIDE * 2\n",
    )


def test_two_pipelines_have_each_their_own_files_and_nothing_leaks(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "helpers", "somebody else's")
    path, known = list(sys.path), {name for name in sys.modules if not name.startswith("_headway_user_")}
    one, two = (load_function(project(tmp_path / str(size), size), "build") for size in (3, 50))
    assert one() == [3, 3, 6, 12, 12, 4] and two() == [50, 50, 100, 200, 200, 51]
    assert one() == [3, 3, 6, 12, 12, 4]
    assert sys.path == path and sys.modules["helpers"] == "somebody else's"
    assert {name for name in sys.modules if not name.startswith("_headway_user_")} == known
    assert not list(tmp_path.rglob("__pycache__")), "bytecode tells a change by the second"
    module = importlib.import_module(one.__module__)
    assert module.Facts.__module__ == one.__module__ and sys.modules[one.__module__] is module


def test_a_file_that_changes_within_the_second_is_loaded_anew(tmp_path):
    for size in (3, 4, 5):
        assert load_function(project(tmp_path, size), "build")()[0] == size


def test_a_failure_in_a_file_beside_it_names_the_line_of_the_import(tmp_path):
    file = written(tmp_path, mine="x = 1\nimport helpers\n", helpers="import nowhere_to_be_found\n")
    said = r"mine.py, line 2: cannot be loaded: ModuleNotFoundError.*nowhere_to_be_found"
    with pytest.raises(ConfigError, match=said):
        load_function(file, "build")
    loaded = [name for name, module in sys.modules.items() if getattr(module, "__file__", None) == str(file)]
    assert not any(name.startswith("_headway_user_") and name.endswith("mine") for name in loaded)


@pytest.mark.long
def test_what_tensorflow_prints_at_its_import_is_left_out_and_what_the_module_prints_stays(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import sys, tensorflow as tf\nprint('said by mine', file=sys.stderr)\nSCALE = tf.constant(1.0)\ndef f(): pass\n"
    )
    code = (
        "import sys\nfrom pathlib import Path\nfrom headway.process import mark_own_process\nmark_own_process()\n"
        "from headway.user_code.loading import load_function\n"
        "load_function(Path(sys.argv[1]), 'f')\nprint('after', file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "mine.py")], capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines() == ["said by mine", "after"]


def test_a_module_that_dies_while_it_is_imported_has_its_last_words(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import os, sys  # before tensorflow\n"
        "print('I0000 00:00:1795703759.948397    9431 port.cc:153] not this', file=sys.stderr)\n"
        "print('the disk is full', file=sys.stderr)\nsys.stderr.flush()\nos._exit(7)\n"
    )
    code = (
        "import sys\nfrom pathlib import Path\nfrom headway.process import mark_own_process\nmark_own_process()\n"
        "from headway.user_code.loading import load_function\nload_function(Path(sys.argv[1]), 'f')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "mine.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 7 and done.stderr.splitlines() == ["the disk is full"]
