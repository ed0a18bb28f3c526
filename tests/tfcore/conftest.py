"""These tests run what the TensorFlow process runs, in this process; the processes that they start are forked."""

import sys

import pytest

from headway.process import mark_own_process

mark_own_process()


@pytest.fixture(autouse=True, scope="module")
def _forked(forked):
    """Not where the environment is another: see `tests.fork_server`."""


@pytest.fixture(autouse=True, scope="module")
def _little_is_read_ahead():
    """Rows that nobody asks for take time."""
    with pytest.MonkeyPatch.context() as patch:
        if (pipeline := sys.modules.get("tfcore.data.dataset")) is not None:
            patch.setattr(pipeline, "AHEAD_STACKS", 2)
        yield
