"""Who is frozen is told by what was not heard, in time in which somebody listened."""

import threading

from tfcore.distribute.heartbeat import HeartbeatMonitor, beating


def test_a_process_is_silent_since_its_last_message():
    now = [0.0]
    silence = HeartbeatMonitor(2, clock=lambda: now[0])
    for time, messages, seconds in ((0.5, (1, 0), (0.0, 0.5)), (1.0, (1, 0), (0.5, 1.0)), (1.25, (1, 4), (0.75, 0.0))):
        now[0] = time
        assert tuple(silence.look(messages)) == seconds


def test_a_pause_of_the_parent_is_nobody_s_silence():
    now = [0.0]
    silence = HeartbeatMonitor(1, clock=lambda: now[0])
    now[0] = 3600.0  # the whole job was suspended, and is continued
    assert silence.look((0,)) == [1.0]


def test_a_pulse_begins_at_once_and_ends_with_its_block():
    beats, beat = [], threading.Event()

    def alive():
        beats.append(threading.current_thread())
        beat.set()

    with beating(alive):
        assert beat.wait(60)
    count = len(beats)
    assert threading.current_thread() not in beats
    assert not beats[0].is_alive() and len(beats) == count
