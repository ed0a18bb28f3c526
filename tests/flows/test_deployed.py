"""Pipelines of a user's own, outside of the clone, on a real server with two real workers: one beside the raw files, and one of
the queue gpu, which has folders of its own, the same store and no raw files: there the second half of a retrain runs.
The server is on PostgreSQL: on SQLite, Prefect loses an event if its database was locked four times, and no alarm follows."""

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from prefect.states import Completed, Running

from flows.config.pipeline import read_pipeline
from flows.orchestration import second_half
from flows.orchestration.deploy import yaml_entries
from tests.flows.churn import PIPELINE
from tests.prefect_server import PrefectServer
from tests.waiting import until
from tests.webhook import Webhook

pytestmark = pytest.mark.server
ENDLESS = {"training.steps": 400000, "training.checkpoint_every_steps": 64}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with a worker and one of the queue gpu, which has folders of its own."""
    folder = tmp_path_factory.mktemp("server")
    server = PrefectServer(folder, HEADWAY_PIPELINES=str(folder / "elsewhere"))
    try:
        server.up("--workers", 1, "--gpu")
        yield server
    finally:
        server.down(check=False)


@pytest.fixture(scope="module")
def client(server):
    from prefect.client.orchestration import get_client

    with server.reached(), get_client(sync_client=True) as client:
        yield client


@pytest.fixture
def project(server, land, tmp_path):
    """project(name) -> the folder of a pipeline with two months; the worker of the queue gpu has its pipeline.yaml alone."""

    def make(name, **changes):
        folder, elsewhere = tmp_path / name, Path(server.env["HEADWAY_PIPELINES"]) / name
        for place in (folder, elsewhere):
            place.mkdir(parents=True)
            own = {"name": name, "store": str(tmp_path / "store"), "queues": {"tensorflow": "gpu"}}
            own |= {"schedule": "0 5 2 * *", "alarms": {"notify": "custom-webhook/ops", "when": ["failed"]}}
            (place / "pipeline.yaml").write_text(yaml.safe_dump(yaml.safe_load(PIPELINE) | own | changes))
        for month in ("2024-01", "2024-02"):
            land(folder / "data", month)
        return folder

    return make


@pytest.fixture
def hook():
    with Webhook() as hook:
        yield hook


def _stand(client, server, flow_run):
    """The state of a flow run, and what the workers said last."""
    logs = [server.home / f"{worker}.log" for worker in ("worker", "worker-gpu")]
    said = "".join(f"\n== {log.name}\n{log.read_text()[-3000:]}" for log in logs)
    return f"{client.read_flow_run(flow_run).state!r}{said}"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_pipeline_outside_of_the_clone_is_deployed_watched_and_taken_away(
    server, client, typed, project, tmp_path, hook
):
    from prefect.blocks.notifications import CustomWebhookNotificationBlock

    folder = project("churn")
    # nobody to tell yet: a sentence, and nothing half made
    said = typed("deploy", folder, check=2).stderr
    assert "has no block 'custom-webhook/ops'" in said and "prefect block create custom-webhook" in said
    assert not client.read_deployments()
    block = CustomWebhookNotificationBlock(name="ops", url=hook.url, json_data={"text": "{{subject}}: {{body}}"})
    block.save("ops")

    # Prefect's own form first, with a setting of a person's; then there is nothing left but the automations
    plain = tmp_path / "plain"
    plain.mkdir()
    listed = yaml_entries(read_pipeline(folder))
    for entry in listed:
        entry["work_pool"]["job_variables"]["env"]["PREFECT_FLOWS_DEFAULT_RETRIES"] = "0"
    (plain / "prefect.yaml").write_text(yaml.safe_dump({"pull": [], "deployments": listed}))
    command = [sys.executable, "-P", "-m", "prefect", "--no-prompt", "deploy", "--all"]
    done = subprocess.run(command, cwd=plain, env=server.env, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    changes = json.loads(typed("deploy", folder, "--json", check=0).stdout)["changes"]["churn"]
    assert changes[0] == "limited work queue gpu to 1 training at once"
    assert [change.split(" 'headway")[0] for change in changes[1:]] == ["made automation"] * 3, changes
    for queue in ("data", "gpu"):
        until(lambda queue=queue: client.read_work_queue_by_name(queue, "headway").status == "READY", 60)
    said = typed("deploy", folder, check=0).stdout
    assert "start a worker" not in said, "its queues are polled"
    assert "churn: nothing to change" in said and "prefect deployment run 'retrain/churn' --watch" in said
    said = typed("deploy", folder, "--schedule", "1 6 * * *", "--timezone", "Europe/Berlin", check=0).stdout
    assert "set the schedule of retrain/churn: 1 6 * * * Europe/Berlin" in said
    names = {client.read_flow(d.flow_id).name: d for d in client.read_deployments()}
    assert names["retrain"].job_variables["env"]["PREFECT_FLOWS_DEFAULT_RETRIES"] == "0"
    assert set(names) == {"retrain", "backfill", "predict", "monitor"}
    assert all(set(d.tags) == {"headway", "churn"} for d in names.values())

    # somebody trains on the only GPU
    holder = client.create_flow_run_from_deployment(names["predict"].id, work_queue_name="gpu", state=Running()).id

    client.create_flow_run_from_deployment(names["retrain"].id)

    def retrains():
        """The two halves, each None before it is there."""
        runs = client.read_flow_runs(limit=50)
        ours = [r for r in runs if r.deployment_id == names["retrain"].id and not r.auto_scheduled]
        return [next((r for r in ours if r.work_queue_name == queue), None) for queue in ("data", "gpu")]

    # the second half waits for that training to end
    until(lambda: retrains()[1] and retrains()[0].state.is_final(), about=retrains)
    time.sleep(10)
    first, second = retrains()
    assert second.state.is_scheduled(), second.state
    assert first.name == "churn 2024-01 to 2024-02: prepared" and second.name == "churn 2024-01 to 2024-02 on gpu"
    assert f"flow run {second.name!r} trains on it, in queue gpu" in first.state.message
    client.set_flow_run_state(holder, Completed(), force=True)
    until(lambda: retrains()[1].state.is_final(), about=retrains)
    _, second = retrains()
    assert second.name == "churn 2024-01 to 2024-02 on gpu: promoted 1", second.state
    assert (tmp_path / "store" / "serving" / "churn" / "1" / "saved_model.pb").exists()
    elsewhere = Path(server.env["HEADWAY_PIPELINES"]) / "churn"
    assert [path.name for path in elsewhere.iterdir()] == ["pipeline.yaml"], "it was made from the store alone"

    ended = json.loads(typed("runs", folder, "--json", check=0).stdout)[::-1]
    assert [(run["state"], run["version"]) for run in ended] == [("done", None), ("promoted", 1)]
    stages = [{step["title"] for step in run["stages"] if not step["cached"]} for run in ended]
    assert {"ingest 2024-01", "ingest 2024-02", "transform"} <= stages[0] and {"train", "gate"} <= stages[1]

    # a folder that is gone is said, where the run would stay Pending; and a run that fails is told
    shutil.move(folder, tmp_path / "moved")
    gone = client.create_flow_run_from_deployment(names["retrain"].id).id
    until(lambda: client.read_flow_run(gone).state.is_final(), about=lambda: _stand(client, server, gone))
    assert client.read_flow_run(gone).name == "churn: failed"
    message = client.read_flow_run(gone).state.message
    assert "no such file" in message and "'headway deploy' with its new folder" in message
    until(lambda: any("no such file" in text for _, text in hook.told), 60, lambda: hook.told)

    assert "removed deployment retrain/churn" in typed("deploy", "churn", "--remove", check=0).stdout
    assert not client.read_deployments() and not client.read_automations()
    assert "nothing of it is there" in typed("deploy", "churn", "--remove", check=0).stdout


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_one_gpu_is_for_one_training_and_either_half_is_cancelled_or_killed_and_resumed(
    server, client, typed, project, tmp_path
):
    ids = {}
    for seed, name in enumerate(("one", "two")):
        folder = project(name, seed=seed, alarms={})  # with the same seed they were the same training
        typed("deploy", folder, "--schedule", "none", check=0)
        ids[name] = client.read_deployment_by_name(f"retrain/{name}").id

    def start(name, **settings):
        return client.create_flow_run_from_deployment(ids[name], parameters={"set": ENDLESS | settings}).id

    def half(first):
        """The state of the second half of a flow run; None before it is there."""
        second = second_half.second_half_of(client, str(first))
        return second and second.state

    def kill(flow_run):
        name = client.read_flow_run(flow_run).infrastructure_pid
        os.kill(int(name.rpartition("@")[2].partition(".")[0]), signal.SIGKILL)

    def cancel(flow_run):
        state = {"state": {"type": "CANCELLING", "name": "Cancelling"}}
        client._client.post(f"/flow_runs/{flow_run}/set_state", json=state)
        until(lambda: client.read_flow_run(flow_run).state.is_final(), 300, about)
        assert client.read_flow_run(flow_run).state.is_cancelled()

    def trainings():
        return len([*(tmp_path / "store" / "checkpoints").glob("*")])

    def steps():
        """How far each training's checkpoints are."""
        found = [*(tmp_path / "store" / "checkpoints").glob("*/*/checkpoint.json")]
        return {path.parents[1].name: path.parent.name for path in sorted(found)}

    def about():
        return [(run.name, run.state) for run in client.read_flow_runs(limit=20)]

    one = start("one")
    until(lambda: trainings() == 1 and steps(), 300, about)
    assert client.read_flow_run(one).state.is_completed() and half(one).is_running()
    two = start("two")
    until(lambda: half(two) and client.read_flow_run(two).state.is_completed(), 300, about)
    time.sleep(10)
    assert half(two).is_scheduled() and trainings() == 1

    # of the same deployment no other run goes on beside a second half
    beside = start("one")
    until(lambda: client.read_flow_run(beside).state.is_final(), 300, about)
    assert client.read_flow_run(beside).state.is_cancelled()

    # the second half is killed: the other pipeline gets the GPU, and the same flow goes on from the checkpoint
    kill(second_half.second_half_of(client, str(one)).id)
    until(lambda: half(one).is_crashed(), 300, about)
    until(lambda: trainings() == 2, 300, about)
    before = steps()
    cancel(second_half.second_half_of(client, str(two)).id)
    again = start("one")
    until(lambda: half(again) and half(again).is_running() and steps() != before, 300, about)
    assert len(steps()) == 2, "the same training"
    cancel(second_half.second_half_of(client, str(again)).id)

    # the first half is cancelled, or killed: it starts no second one; the next finds what was done
    locked = read_pipeline(tmp_path / "two").open_store().lock("run-two", {"run": "a person's"})
    with locked.held():
        for end in (cancel, kill):
            parameters = {"set": ENDLESS, "wait": 600}
            preparing = client.create_flow_run_from_deployment(ids["two"], parameters=parameters).id
            until(lambda id=preparing: client.read_flow_run(id).state.is_running(), 300, about)
            end(preparing)
            until(lambda id=preparing: client.read_flow_run(id).state.is_final(), 300, about)
            assert half(preparing) is None
    assert client.read_flow_run(preparing).state.is_crashed()
    last = client.create_flow_run_from_deployment(ids["two"], parameters={"set": {"training.steps": 16}}).id
    until(lambda: half(last) and half(last).is_final(), 300, about)
    assert half(last).is_completed() and "is promoted" in half(last).message, half(last)


FLOWS = """
import sys
from flows.orchestration.flows import backfill, monitor, predict, retrain

folder, poor = sys.argv[1], {"training.learning_rate": 1e-9}
states = [
    retrain(folder, until="2024-02", set=poor, return_state=True),
    retrain(folder, until="2024-02", set={"gate.hold": True}, return_state=True),
    retrain(folder, until="2024-02", set={"gate.thresholds.auc.min": 0.9999}, return_state=True),
    retrain(folder, until="2024-02", set=poor, seed=1, return_state=True),
    retrain(folder, until="2024-02", set={"validation.min_train_rows": 1000}, return_state=True),
    predict(folder, since="2024-03", return_state=True),
    monitor(folder, return_state=True),
    backfill(folder, "2024-02", "2024-02", set={"validation.min_train_rows": 1000}, return_state=True),
]
print([(state.type.value, state.name) for state in states])
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_a_person_should_look_at_is_the_name_of_a_flow_runs_state(server, client, project, land):
    """Flows on this server in one process, which is cheaper than a process for each; automations wait for the events."""
    validation = {"drift": {"min_rows": 100}}
    gate = {"primary": "loss", "baseline": False, "tolerance": {"auc": 0.4, "loss": 0.8}}
    folder = project("events", queues={}, alarms={}, validation=validation, gate=gate)
    land(folder / "data", "2024-03", shift=3.0)
    command = [sys.executable, "-P", "-c", FLOWS, str(folder)]
    done = subprocess.run(command, env=server.env, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    states = ast.literal_eval(done.stdout.splitlines()[-1])
    named = ["Completed", "Held", "Rejected", "Completed", "Failed", "Completed", "Drifting"]
    assert [name for _, name in states[:-1]] == named, done.stdout + done.stderr
    assert all(kind == "COMPLETED" for kind, name in states if name in ("Held", "Rejected", "Drifting"))
    expected = {f"prefect.flow-run.{name}" for name in named}

    def seen():
        query = {"filter": {"event": {"name": sorted(expected)}}, "limit": 50}
        return {event["event"] for event in client._client.post("/events/filter", json=query).json()["events"]}

    until(lambda: seen() == expected, about=seen)
