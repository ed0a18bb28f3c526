"""Headway's Prefect flows, their deployments, and a worker that stops after its runs have saved. Needs the extra `prefect`."""

import sys

from flows.config.extras import require
from headway.errors import ConfigError

HEARTBEAT = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}
"""The seconds between two heartbeats, by which a flow run tells that it lives; Prefect's default is 180."""

ENVIRONMENT = HEARTBEAT | {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Environment variables of a process that runs flows and of its child processes. A variable that is set already is kept."""

try:
    require("prefect", where="flows.orchestration")
except ConfigError as error:
    if sys.argv[:1] == ["-m"]:  # python -m flows.orchestration.worker: a sentence instead of a traceback
        raise SystemExit(str(error)) from None
    raise
