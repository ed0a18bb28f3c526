"""What is printed while TensorFlow's own lines are left out."""

import select
import subprocess
import sys

PROGRAM = """
import sys
from headway.user_code.quiet_stderr import filtered_stderr
with filtered_stderr():
    print("I0000 00:00:1795706485.020086   24166 port.cc:153] oneDNN", file=sys.stderr, flush=True)
    print("mine", file=sys.stderr, flush=True)
    sys.stdin.read()
"""


def test_a_line_is_shown_at_once_where_stderr_is_a_pipe():
    child = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdin is not None and child.stderr is not None
    try:
        ready, _, _ = select.select([child.stderr], [], [], 30)
        assert ready, "the block has not ended, and nothing is shown"
        assert child.stderr.readline() == b"mine\n"
    finally:
        child.stdin.close()
        rest = child.stderr.read()
        child.stderr.close()
        assert child.wait(30) == 0 and rest == b""
