"""One process of a training that runs in several: what `tfcore.train.launch` starts."""

import contextlib
from pathlib import Path
from typing import Any

import tensorflow as tf

from headway.monitor import Monitor
from tfcore.distribute.heartbeat import beating
from tfcore.distribute.placement import Placement, place
from tfcore.distribute.process_group import ending_with_parent
from tfcore.train.launch import MemberRequest
from tfcore.train.stage import train_placed


def member(request: MemberRequest, out: Path, monitor: Monitor) -> dict[str, Any]:
    """One process's part of a training; called in a process that has computed nothing yet."""
    with contextlib.ExitStack() as until_its_end:

        def placed() -> Placement:
            with ending_with_parent():
                placement = place(
                    request.choice, worker=request.worker, gpus=len(tf.config.list_physical_devices("GPU"))
                )
            # not before: waiting for the others keeps Python from running
            until_its_end.enter_context(beating(monitor.alive))
            return placement

        return train_placed(request.request, out, monitor, placed, remote=request.remote)
