"""The collector's state after an import without it; imports of Beam without what it takes along; blocks around imports."""

import gc
import subprocess
import sys

import pytest

from headway.process_tuning import NEW_OBJECTS, freed_kept, in_threads, uncollected


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


_DATA_FRAMES = """
import numpy as np, pandas as pd, pyarrow as pa
frame = pd.DataFrame({"x": [1.5, np.nan], "c": pd.Categorical(["a", "b"])})
print(pa.array(frame.x).null_count, pa.types.is_dictionary(pa.array(frame.c).type), pa.Table.from_pandas(frame).num_rows)
print(pa.array([pd.DateOffset(days=1)]).to_pylist()[0].days, pa.array([pd.NaT, 1.5], from_pandas=True).null_count)
"""


@pytest.mark.parametrize(
    "before",
    [
        "from flows.cli.app import main; import sys; sys.argv[1:] = ['runs', 'nowhere']; main()",
        "from headway.process import own; own(); from beam_jobs.runners.beam_import import load_beam; load_beam()",
        "from tfcore.runtime.start import import_tensorflow; import_tensorflow()",
        "import importlib.util; importlib.util.find_spec('pandas')",
    ],
)
def test_arrow_knows_data_frames_in_a_process_of_headways_own_as_in_any(before):
    first_array = "import pyarrow as pa; pa.array([1.5]); pa.table({'a': ['x']})"
    assert _printed(f"{before}\n{first_array}\n{_DATA_FRAMES}") == "1 True 2\n1 1\n"


@pytest.mark.long
def test_only_a_process_of_headways_own_without_a_file_of_the_users_imports_beam_without_its_optional_parts(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n")
    program = """
import sys
from beam_jobs.runners.beam_import import leave_out_optional, load_beam
{before}
beam = load_beam()
print(*(name in sys.modules for name in ("apache_beam.io.gcp.bigquery", "boto3", "pandas", "pymongo")))
"""
    used = f"""
beam.io.ReadFromCsv({str(tmp_path / "a.csv")!r})
beam.io.ReadFromMongoDB(uri="mongodb://localhost:1", db="d", coll="c", bucket_auto=True)
"""
    own = "from headway.process import own; own()"
    later = """
from apache_beam.io.gcp.bigquery import ReadFromBigQuery
from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner
import boto3
"""
    assert _printed(program.format(before=f"{own}; leave_out_optional()") + later) == "False False False False\n"
    used += "beam.io.ReadFromBigQuery"
    assert _printed(program.format(before="leave_out_optional()") + used) == "True True True True\n"
    assert _printed(program.format(before=own) + used) == "True True True True\n", "a file of the user's may need them"


def test_arrow_is_without_pandas_only_in_a_process_of_headways_own_which_may_import_it_all_the_same():
    program = """
import sys
from headway.process import own
from beam_jobs.runners.beam_import import leave_out_optional
{own}
leave_out_optional()
import pyarrow as pa
pa.array([1.5, None], from_pandas=True); pa.table({{"a": ["x"]}})["a"].to_numpy()
print("pandas" in sys.modules)
import pandas as pd
print(pa.Table.from_pandas(pd.DataFrame({{"x": [1.5, float("nan")]}}))["x"].null_count, type(pa.array([1]).to_pandas()).__name__)
"""
    assert _printed(program.format(own="own()")) == "False\n1 Series\n"
    assert _printed(program.format(own="")) == "True\n1 Series\n"


def test_numpy_multiplies_in_one_thread_and_further_processes_as_they_like(monkeypatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    program = """
import importlib.util, os, subprocess, sys
from headway.process_tuning import one_blas_thread
one_blas_thread()
importlib.util.find_spec("numpy")
child = "import os; print(os.environ.get('OPENBLAS_NUM_THREADS'))"
print(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout.strip())
import numpy as np
a = np.ones((500, 500)) @ np.ones((500, 500))
print(len(os.listdir("/proc/self/task")), os.environ.get("OPENBLAS_NUM_THREADS"))
"""
    assert _printed(program) == "None\n1 None\n"
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    assert _printed(program).endswith(" 2\n"), "what the user has set stays"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="heaps of glibc")
def test_threads_have_heaps_of_their_own_only_where_a_model_is_called(tmp_path):
    program = f"""
import ctypes, re, threading
from headway.process_tuning import one_blas_thread
one_blas_thread(one_heap={{one}})
import numpy as np
libc, all_there = ctypes.CDLL(None), threading.Barrier(3)
def work():
    libc.malloc(5000)
    all_there.wait()
threads = [threading.Thread(target=work) for _ in range(3)]
[t.start() for t in threads], [t.join() for t in threads]
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen({str(tmp_path / "heaps").encode()!r}, b"w"))
libc.malloc_info(0, file), libc.fclose(file)
print(len(re.findall("<heap ", open({str(tmp_path / "heaps")!r}).read())) > 1)
"""
    assert [_printed(program.format(one=one)) for one in (True, False)] == ["False\n", "True\n"]


@pytest.mark.parametrize("again", ["", "importlib.reload(mine)"])
def test_a_block_is_around_the_first_import_that_succeeds_and_around_no_look_for_the_package(tmp_path, again):
    (tmp_path / "mine.py").write_text(
        "import os, importlib.util; importlib.util.find_spec('mine')\nos.environ['READY']\n"
    )
    program = f"""
import contextlib, importlib, importlib.util, os, sys
sys.path.insert(0, {str(tmp_path)!r})
from headway.process_tuning import around_import
@contextlib.contextmanager
def block():
    print("before")
    yield
    print("after", "mine" in sys.modules)
around_import("mine", block); around_import("mine", block)
for _ in range(2):
    print(importlib.util.find_spec("mine").name)
with contextlib.suppress(KeyError):
    import mine
os.environ["READY"] = "1"
import mine
{again}
"""
    assert _printed(program).split("\n") == ["mine", "mine", "before", "before", "after True", ""]


@pytest.mark.long
def test_headways_layers_are_registered_though_somebody_has_looked_for_keras():
    program = """
import importlib.util, tfcore
importlib.util.find_spec("keras")
from keras import saving
print(any(name.startswith("headway") for name in saving.get_custom_objects()))
"""
    assert _printed(program) == "True\n"


@pytest.mark.parametrize("cores", [1, 3])
def test_threads_answer_in_order_and_the_first_error_is_raised_and_ends_the_rest(monkeypatch, cores):
    monkeypatch.setattr("headway.process_tuning.cores", lambda: cores)
    assert (
        in_threads(lambda number: number**2, range(20)) == [number**2 for number in range(20)]
        and in_threads(str, []) == []
    )
    began = []

    def failing(number):
        began.append(number)
        if number in (3, 4):
            raise ValueError(number)

    with pytest.raises(ValueError, match="3"):
        in_threads(failing, range(10_000))
    assert len(began) < 10_000

    def check():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_threads(str, range(5), check=check)


def test_memory_that_is_freed_in_a_block_is_there_again_behind_it():
    """In a process of its own: what malloc keeps is of the whole process."""
    program = """
import sys, numpy as np
from headway.process_tuning import freed_kept
def held(): return int(open("/proc/self/statm").read().split()[1]) * 4096
before = held()
with freed_kept():
    arrays = [np.ones(1 << 20) for _ in range(40)]
    del arrays
    assert held() - before > 250e6, held() - before
assert held() - before < 60e6, held() - before
"""
    if sys.platform == "linux":
        subprocess.run([sys.executable, "-c", program], check=True)
    with pytest.raises(ValueError), freed_kept():
        raise ValueError
