"""The fork server of tests spares imports only where it forks."""

import os
import sys

from tests.fork_server import Forked
from tfcore.export.replay import script


def test_a_replay_is_forked_whatever_its_worker_has_set_for_itself(fork_server):
    env = os.environ | {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    process = fork_server.Popen([sys.executable, "-I", script()], env=env)
    assert isinstance(process, Forked)
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()
    process.wait()
