"""Runs a module of Prefect's with this package's `flows` already imported.

    python -P -m flows.launcher prefect.engine               # a flow run: prefect.yaml's command
    python -P -m flows.launcher prefect deploy --all

Prefect imports a flow named by module with the working directory first on the path, whatever -P says: a project with a
flows/ folder of its own would be imported instead of Headway.

A flow run is also made to outlive its worker and an outage of the server: it writes its pid down
and drops lines that nobody reads (`flows.orchestration.processes`), and goes on without the lease of its concurrency slot.
"""

import importlib
import os
import runpy
import sys
import warnings

from flows.orchestration.processes import enlist, outlive_reader

# not in the deployment: --job-variable env=... would replace them there
for _name, _value in {
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "OPENBLAS_NUM_THREADS": "1",
}.items():
    os.environ.setdefault(_name, _value)

_FLOW_RUN = __name__ == "__main__" and sys.argv[1:2] == ["prefect.engine"]

if _FLOW_RUN:
    enlist(os.environ)  # before the long imports: a run that is killed in them is known to be dead
    outlive_reader()

flows = importlib.import_module("flows.orchestration.flows")  # behind the settings that it reads

if __name__ == "__main__":
    assert flows.retrain.name == "retrain"
    if _FLOW_RUN:
        from flows.orchestration.prefect_internals import go_on_without_lease

        go_on_without_lease()
        warnings.filterwarnings("ignore", message=".*found in sys.modules", module="runpy")  # nothing is run twice
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
