"""Runs a module of Prefect's with this package's `flows` already imported.

    python -P -m flows.ours prefect.engine               # a flow run: prefect.yaml's command
    python -P -m flows.ours prefect deploy --all

Prefect imports a flow named by module with the working directory first on the path, whatever -P says: a project with a
flows/ folder of its own would be imported instead of Headway.
"""

from __future__ import annotations

import runpy
import sys

from headway.imports import uncollected

with uncollected(keep=True):
    import flows.retrain

if __name__ == "__main__":
    assert flows.retrain.retrain.name == "retrain"
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
