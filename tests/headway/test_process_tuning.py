"""The collector's state after an import without it."""

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
