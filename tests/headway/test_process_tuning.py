"""The collector's state after an import without it; imports of Arrow and Beam without what they take along."""

import gc
import subprocess
import sys

import pytest

from headway.process_tuning import NEW_OBJECTS, uncollected


def test_the_collector_is_off_meanwhile_and_as_before_then():
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), uncollected():
        raise ImportError
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_command_looks_for_garbage_rarely_and_a_server_as_python_does():
    code = "import gc, sys; from flows.cli.app import main; main(); print(gc.get_threshold()[0])"
    for command, threshold in (("runs", NEW_OBJECTS), ("serve", 700)):
        done = subprocess.run(
            [sys.executable, "-c", code, command, "nowhere"], capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == [str(threshold)], done.stderr


def test_what_is_kept_is_not_looked_at_again_while_what_comes_later_is():
    code = (
        "import gc; from headway.process_tuning import uncollected\n"
        "with uncollected(keep=True): import decimal\n"
        "print(gc.get_freeze_count() > 1000, len(gc.get_objects()) < 1000)\n"
        "made = []; made.append(made); del made\n"
        "print(gc.collect() > 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * 3


def _printed(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("before", ["", "import pyarrow"])
def test_arrow_reads_data_frames_once_somebody_has_imported_pandas(before):
    program = f"""
{before}
import sys
from headway.process_tuning import arrow_without_pandas
arrow_without_pandas()
import numpy as np, pyarrow as pa
table = pa.table({{"a": np.arange(3), "b": ["x", None, "z"]}})
print(pa.array([1]).type, "pandas" in sys.modules)
import pandas as pd
print(pa.array(pd.Series([1.5, float("nan")])).null_count, pa.Table.from_pandas(pd.DataFrame({{"a": [1]}})).num_rows)
"""
    assert _printed(program) == "int64 False\n1 1\n"


def test_arrow_makes_data_frames_for_code_that_never_names_pandas():
    program = """
from headway.process_tuning import arrow_without_pandas
arrow_without_pandas()
import pyarrow as pa
print(type(pa.table({"a": [1]}).to_pandas()).__name__)
"""
    assert _printed(program) == "DataFrame\n"


def test_pandas_that_was_imported_before_is_known_to_arrow():
    program = """
import pandas as pd
from headway.process_tuning import arrow_without_pandas
arrow_without_pandas()
import pyarrow as pa
print(pa.array(pd.Series([1.5, float("nan")])).null_count)
"""
    assert _printed(program) == "1\n"


def test_only_a_process_of_headways_own_imports_beam_without_pandas():
    program = """
import sys
from beam_jobs.runners.beam_import import load_beam
{own}
load_beam()
print("pandas" in sys.modules, "pymongo" in sys.modules)
"""
    assert _printed(program.format(own="from headway.process import own; own()")) == "False False\n"
    assert _printed(program.format(own="")) == "True True\n"


def test_numpy_multiplies_in_one_thread_and_further_processes_as_they_like(monkeypatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    program = """
import os
from headway.process_tuning import one_blas_thread
one_blas_thread()
import numpy as np
a = np.ones((500, 500)) @ np.ones((500, 500))
print(len(os.listdir("/proc/self/task")), os.environ.get("OPENBLAS_NUM_THREADS"))
"""
    assert _printed(program) == "1 None\n"
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    assert _printed(program).endswith(" 2\n"), "what the user has set stays"
