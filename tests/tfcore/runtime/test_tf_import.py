"""Keras is imported without packages that are installed for other things; whoever else wants them in the block gets them."""

import subprocess
import sys

import pytest

from tfcore.runtime.tf_import import lean_keras

PROGRAM = """
import sys
from pathlib import Path
from headway.process import own
from tfcore.runtime.tf_import import startup
own()
with startup():
    Path("mine.py").write_text("import pandas, sklearn.metrics\\nimport keras\\n")
    sys.path.insert(0, ".")
    import mine
print(mine.pandas.DataFrame({"a": [1]}).shape, "matplotlib" in sys.modules)
import matplotlib.pyplot
import numpy
keras = mine.keras
print(keras.layers.STFTSpectrogram(frame_length=16, frame_step=8)(numpy.zeros((1, 64, 1), "float32")).shape)
print(keras.Sequential([keras.layers.Dense(1)]).predict(mine.pandas.DataFrame({"a": [1.0, 2.0]}), verbose=0).shape)
"""


@pytest.mark.long
def test_a_users_module_that_needs_scikit_learn_is_imported_while_tensorflow_starts(tmp_path):
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shapes = done.stdout.split("\n")
    assert shapes[0] == "(1, 1) False"
    assert shapes[1] == "(1, 7, 9)", "a layer of Keras that needs SciPy finds it"
    assert shapes[2] == "(2, 1)", "Keras takes data frames"


@pytest.mark.parametrize("ask", ["import pandas", "import importlib; importlib.import_module('pandas')"])
def test_only_keras_is_told_that_a_package_is_missing(monkeypatch, ask):
    for name in [name for name in sys.modules if name.split(".")[0] == "pandas"]:
        monkeypatch.delitem(sys.modules, name)
    with lean_keras():
        with pytest.raises(ModuleNotFoundError, match="pandas"):
            exec(ask, {"__name__": "keras.src.trainers"})
        exec(ask, {"__name__": "mine"})
        exec(ask, {"__name__": "keras.src.trainers"})  # it is there
