"""A pipeline of a user's own, outside of the clone, on a real server with a real worker: deployed, watched, taken away."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from beam_jobs.runners.job_server import free_port

PIPELINE = """
name: churn
source: {format: parquet, path: "data/{span}.parquet"}
label: y
columns: {id: {role: key}, x: standardize, c: vocabulary}
split: {mode: time}
model: {hidden: [4]}
training: {steps: 16, batch_size: 64, steps_per_call: 8}
gate: {baseline: false}
schedule: "0 5 2 * *"
alarms: {notify: custom-webhook/ops, when: [failed]}
watch: {quiet_minutes: 0}
store: store
"""


TOLD = []
"""What the notification block sent."""


class Listener(BaseHTTPRequestHandler):
    def do_POST(self):
        TOLD.append(self.rfile.read(int(self.headers["content-length"])).decode())
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The environment in which somebody types, with a server and a worker of `make up`."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "prefect.yaml").write_text("deployments: []\n")
    port = free_port()
    command = [sys.executable, "-P", "-m", "flows.orchestration.local_server"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    up = subprocess.run(
        [*command, "start", "--port", str(port)],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    try:
        assert up.returncode == 0, up.stdout + up.stderr
        auth = (folder / ".headway" / "prefect" / "auth").read_text().strip()
        yield env | {
            "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
            "PREFECT_API_AUTH_STRING": auth,
            "PREFECT_HOME": str(folder / "client"),
            "NO_PROXY": "127.0.0.1",
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        }
    finally:
        subprocess.run([*command, "stop"], cwd=folder, env=env, capture_output=True, timeout=200, check=False)


@pytest.fixture(scope="module")
def client(server):
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

    settings = {PREFECT_API_URL: server["PREFECT_API_URL"], PREFECT_API_AUTH_STRING: server["PREFECT_API_AUTH_STRING"]}
    with temporary_settings(settings), get_client(sync_client=True) as client:
        yield client


def _until(true, seconds=120, about=lambda: None):
    deadline = time.monotonic() + seconds
    while not (value := true()):
        assert time.monotonic() < deadline, about()
        time.sleep(0.5)
    return value


@pytest.mark.slow
@pytest.mark.prefect_server
@pytest.mark.timeout(600)
def test_a_pipeline_outside_of_the_clone_is_deployed_watched_and_taken_away(server, client, typed, land, tmp_path):
    from prefect.blocks.notifications import CustomWebhookNotificationBlock

    folder = tmp_path / "churn"
    folder.mkdir()
    (folder / "pipeline.yaml").write_text(PIPELINE)
    for month in ("2024-01", "2024-02"):
        land(folder / "data", month)

    # nobody to tell yet: a sentence, and nothing half made
    said = typed("deploy", folder, check=2).stderr
    assert "has no block 'custom-webhook/ops'" in said and "prefect block create custom-webhook" in said
    assert not client.read_deployments()
    listener = ThreadingHTTPServer(("127.0.0.1", 0), Listener)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    block = CustomWebhookNotificationBlock(
        name="ops", url=f"http://127.0.0.1:{listener.server_port}/", json_data={"text": "{{subject}}: {{body}}"}
    )
    block.save("ops")

    # the plain form first; then there is nothing left but the alarms
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "prefect.yaml").write_text(typed("deploy", folder, "--yaml", check=0).stdout)
    command = [sys.executable, "-P", "-m", "flows.launcher", "prefect", "--no-prompt", "deploy", "--all"]
    done = subprocess.run(command, cwd=plain, env=server, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    changes = json.loads(typed("deploy", folder, "--json", check=0).stdout)["changes"]["churn"]
    assert len(changes) == 2 and all(change.startswith("made automation") for change in changes), changes
    said = typed("deploy", folder, check=0).stdout
    assert "churn: nothing to change" in said and "prefect deployment run 'retrain/churn' --watch" in said
    said = typed("deploy", folder, "--schedule", "1 6 * * *", "--timezone", "Europe/Berlin", check=0).stdout
    assert "changed the schedule of retrain/churn: 1 6 * * * Europe/Berlin" in said
    names = {client.read_flow(d.flow_id).name: d for d in client.read_deployments()}
    assert set(names) == {"retrain", "backfill", "watch", "predict", "monitor"}
    assert all(set(d.tags) == {"headway", "churn"} for d in names.values())

    # a flow run and somebody who types both watch: one retrain comes of it, whose name says what came of that
    watcher = client.create_flow_run_from_deployment(names["watch"].id).id
    _until(lambda: client.read_flow_run(watcher).state.is_final())
    assert "2024-02" in client.read_flow_run(watcher).name
    said = typed("watch", folder, "--once", check=0).stdout
    assert "the retrain up to 2024-02 goes on" in said or "nothing new after 2024-02" in said

    def retrains():
        runs = client.read_flow_runs(limit=50)
        return [r for r in runs if r.deployment_id == names["retrain"].id and r.state.type.value != "SCHEDULED"]

    _until(lambda: retrains() and all(run.state.is_final() for run in retrains()), about=retrains)
    (run,) = retrains()
    assert run.name == "churn 2024-01 to 2024-02: promoted 1", run.state
    assert (folder / "store" / "serving" / "churn" / "1" / "saved_model.pb").exists()
    assert "nothing new after 2024-02" in typed("watch", folder, "--once", check=0).stdout

    # a run that fails is told
    parameters = {"until": "2050-01"}
    failing = client.create_flow_run_from_deployment(names["retrain"].id, parameters=parameters).id
    _until(lambda: client.read_flow_run(failing).state.is_final())
    assert client.read_flow_run(failing).name == "churn: failed"
    _until(lambda: any("there is no span" in text for text in TOLD), 60)

    # a folder that is gone is said, where the run would stay Pending
    shutil.move(folder, tmp_path / "moved")
    gone = client.create_flow_run_from_deployment(names["retrain"].id).id
    _until(lambda: client.read_flow_run(gone).state.is_final())
    assert "no such file" in client.read_flow_run(gone).state.message

    assert "removed deployment retrain/churn" in typed("undeploy", "churn", check=0).stdout
    assert not client.read_deployments() and not client.read_automations()
    assert "nothing of it is there" in typed("undeploy", "churn", check=0).stdout
    listener.shutdown()
