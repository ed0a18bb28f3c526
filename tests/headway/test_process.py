"""Warnings of libraries stay with their developers."""

import subprocess
import sys

CODE = """
import warnings
from headway.process import quiet_libraries
quiet_libraries()
for module in ("keras.src.models", "numpy", "my_model"):
    warnings.warn_explicit("of " + module, UserWarning, module.replace(".", "/") + ".py", 3, module)
"""


def test_a_library_s_warnings_are_kept_and_those_of_the_user_s_module_are_shown():
    told = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True).stderr
    assert "my_model.py:3: UserWarning: of my_model" in told and "keras" not in told and "numpy" not in told
    asked = subprocess.run([sys.executable, "-W", "default", "-c", CODE], capture_output=True, text=True, check=True)
    assert "keras" in asked.stderr
