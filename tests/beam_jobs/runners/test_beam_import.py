"""Beam is imported and run without its lines; those of others are heard meanwhile."""

import logging
import subprocess
import sys
import threading

from beam_jobs.runners.beam_import import silenced

PROGRAM = """
import logging, threading
from beam_jobs.runners import beam_import
heard = []
class Handler(logging.Handler):
    def emit(self, record):
        heard.append(record.getMessage())
logging.getLogger().addHandler(Handler())
beam_import.begin_import()
while threading.active_count() > 1:
    logging.getLogger().warning("mine")
    logging.getLogger("flow").warning("mine")
    threading.Event().wait(0.01)
assert len(heard) > 10 and set(heard) == {"mine"}, set(heard)
"""


def test_lines_of_others_are_heard_while_beam_is_imported_and_none_of_beams():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_beam_speaks_again_when_the_last_of_several_jobs_has_ended():
    logger = logging.getLogger("apache_beam")
    before, entered, leave = logger.level, threading.Event(), threading.Event()

    def other():
        with silenced():
            entered.set()
            leave.wait()

    with silenced():
        thread = threading.Thread(target=other)
        thread.start()
        entered.wait()
    assert logger.level == logging.CRITICAL
    leave.set()
    thread.join()
    assert logger.level == before
