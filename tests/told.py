"""A monitor that keeps what it is told."""

import threading

from headway.monitor import Monitor


class Told(Monitor):
    """See the module: the progress, the lines, and the threads that told of progress."""

    def __init__(self):
        super().__init__()
        self.done, self.lines, self.threads = [], [], set()

    def progress(self, done, total, unit, **facts):
        self.done.append((done, total, unit))
        self.threads.add(threading.current_thread())

    def log(self, line):
        self.lines.append(line)
