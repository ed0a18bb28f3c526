"""Prefect on this machine: server, work pool, worker, deployments, and runs that are lost. It needs the extra `prefect`."""

import sys

from flows.config.extras import require
from headway.errors import ConfigError

try:
    require("prefect", where="flows.orchestration")
except ConfigError as error:
    if sys.argv[:1] == ["-m"]:  # python -m flows.orchestration.worker: a sentence instead of a traceback
        raise SystemExit(str(error)) from None
    raise
