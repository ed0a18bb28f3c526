"""Knobs that a person sets while a training runs, through its control file."""

from pathlib import Path

from headway.errors import ConfigError
from tfcore.train.session import Callback, TrainingSession
from tfcore.train.settings.control_file import ControlFile


class KnobsByHand(Callback):
    """Sets knobs to the control file's values before the next steps."""

    def __init__(self, path: Path):
        self._file = ControlFile(path)

    def begin(self, session: TrainingSession) -> None:
        if session.checkpoint is None and session.placement.chief:
            self._file.begin()

    def before_call(self, session: TrainingSession) -> None:
        try:
            for change in session.knobs.change(session.step, self._file.news() or {}):
                to = "back to its schedule" if change["value"] is None else f"{change['value']:g}"
                session.monitor.log(f"{change['knob']} is {to} from step {session.step:,} on")
        except ConfigError as error:  # a bad edit must not end a training
            session.monitor.warn(f"{self._file.path} is ignored: {error}")
