"""Arrow and Beam are imported without what they take along, and meet pandas when somebody imports it."""

import subprocess
import sys

import pytest


def _printed(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("before", ["", "import pyarrow"])
def test_arrow_reads_data_frames_once_somebody_has_imported_pandas(before):
    program = f"""
{before}
import sys
from headway.lean_imports import arrow_without_pandas
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
from headway.lean_imports import arrow_without_pandas
arrow_without_pandas()
import pyarrow as pa
print(type(pa.table({"a": [1]}).to_pandas()).__name__)
"""
    assert _printed(program) == "DataFrame\n"


def test_pandas_that_was_imported_before_is_known_to_arrow():
    program = """
import pandas as pd
from headway.lean_imports import arrow_without_pandas
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
