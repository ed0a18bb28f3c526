"""Beam is imported and run without its lines; those of others are heard meanwhile."""

import logging
import subprocess
import sys
import threading

from beam_jobs.runners.beam_import import load_beam, silenced

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


def test_a_pipeline_imports_no_ipython_to_find_out_that_it_is_not_in_one():
    program = """
import sys
from beam_jobs.runners import beam_import, config
beam = beam_import.load_beam()
before = {*sys.modules}
with config.make_pipeline(config.RunnerConfig()) as pipeline:
    pipeline | beam.Create([1])
print("IPython" in sys.modules, "apache_beam.runners.portability.fn_api_runner" in before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False True\n"


def test_the_end_of_a_bundle_waits_milliseconds_for_beams_sampler():
    load_beam()
    from apache_beam.runners.worker import bundle_processor
    from apache_beam.utils.counters import CounterFactory

    assert bundle_processor.statesampler.StateSampler("stage", CounterFactory()).sampling_period_ms <= 10


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
