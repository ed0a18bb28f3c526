"""What a pipeline needs on a server, as plain values."""

import uuid
from types import SimpleNamespace

import httpx
import pytest
import yaml

from flows.config.pipeline import read_pipeline
from flows.config.production import FLOWS, ScheduleConfig
from flows.orchestration import flows
from flows.orchestration.deploy import ENTRYPOINTS, automations, lost_run_problems, queues_of, yaml_entries
from headway.errors import ConfigError

PIPELINE = {"name": "churn", "source": {"format": "csv", "path": "data/{span}.csv"}, "label": "y"}


@pytest.fixture
def loaded(tmp_path):
    def read(**sections):
        (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(PIPELINE | sections))
        return read_pipeline(tmp_path)

    return read


def test_a_deployment_of_each_flow_is_named_after_the_pipeline(loaded, tmp_path):
    found = yaml_entries(loaded(schedule={"retrain": "0 5 2 * *"}))
    assert {entry["name"] for entry in found} == {"churn"}
    assert {entry["entrypoint"] for entry in found} == {ENTRYPOINTS[flow] for flow in FLOWS}
    for entry in found:
        assert entry["parameters"]["pipeline"] == str(tmp_path)
        assert entry["tags"] == ["headway", "churn"] and entry["description"]
        assert entry["concurrency_limit"] == {"limit": 1, "collision_strategy": "CANCEL_NEW"}
    retrain = found[0]
    assert retrain["schedules"] == [{"cron": "0 5 2 * *", "timezone": "UTC", "slug": "headway", "active": True}]
    assert not any(entry["schedules"] for entry in found[1:])
    assert {entry["work_pool"]["work_queue_name"] for entry in found} == {"data"}


def test_a_pipeline_with_queues_has_the_same_deployments(loaded):
    assert yaml_entries(loaded(queues={"tensorflow": "gpu"})) == yaml_entries(loaded())
    assert queues_of(loaded(queues={"tensorflow": "gpu"})) == ["data", "gpu"]


def test_the_command_line_has_the_last_word_on_the_schedule(loaded):
    schedule = {"retrain": "0 5 2 * *", "monitor": "0 7 * * *", "timezone": "America/New_York"}
    retrain = ScheduleConfig(retrain="1 1 1 * *", timezone="Europe/Berlin")
    found = yaml_entries(loaded(schedule=schedule), retrain=retrain)
    timings = {each["entrypoint"]: [(s["cron"], s["timezone"]) for s in each["schedules"]] for each in found}
    assert timings == {
        ENTRYPOINTS["retrain"]: [("1 1 1 * *", "Europe/Berlin")],
        ENTRYPOINTS["backfill"]: [],
        ENTRYPOINTS["predict"]: [],
        ENTRYPOINTS["monitor"]: [("0 7 * * *", "America/New_York")],
    }
    assert not any(each["schedules"] for each in yaml_entries(loaded(schedule="0 5 2 * *"), retrain=False))


@pytest.mark.parametrize("name", ENTRYPOINTS)
def test_the_form_of_each_flow_checks_and_explains_every_parameter(name):
    for parameter, field in getattr(flows, name).parameters.properties.items():
        assert field.get("description"), f"{name}.{parameter} is not described"
        assert {"type", "anyOf", "enum"} & set(field), f"{name}.{parameter} has no type"


def test_alarms_are_automations_that_tell_each_block(loaded):
    deployments = {name: uuid.uuid4() for name in ENTRYPOINTS}
    blocks = {"slack-webhook/ops": uuid.uuid4(), "email/team": uuid.uuid4()}
    found = {a.name: a for a in automations(loaded(), deployments=deployments, blocks=blocks)}
    assert {f"headway churn: {alarm}" for alarm in ("failed", "held", "rejected", "late", "drifting")} <= set(found)
    failed, held = found["headway churn: failed"], found["headway churn: held"]
    assert {action.block_document_id for action in failed.actions} == set(blocks.values())
    wanted = sorted(f"prefect.deployment.{id}" for id in deployments.values())
    assert failed.trigger.match_related.model_dump()["prefect.resource.id"] == wanted
    assert held.trigger.expect == {"prefect.flow-run.Held"}
    assert held.trigger.match_related == failed.trigger.match_related
    assert found["headway churn: late"].trigger.within.total_seconds() == 3600


def test_without_a_block_nobody_is_told_and_lost_runs_are_found_out(loaded):
    deployment = uuid.uuid4()
    found = automations(loaded(), deployments={"retrain": deployment}, blocks={})
    assert [automation.name for automation in found] == ["headway churn: not started", "headway churn: silent"]
    assert all(automation.actions[0].state == "CRASHED" for automation in found)
    started, silent = (automation.trigger for automation in found)
    for trigger in (started, silent):
        assert trigger.posture == "Proactive" and trigger.for_each == {"prefect.resource.id"}
        assert trigger.match_related.model_dump()["prefect.resource.id"] == [f"prefect.deployment.{deployment}"]
        ends = ("Completed", "Held", "Rejected", "Drifting", "Failed", "TimedOut", "Cancelled", "Crashed")
        assert {f"prefect.flow-run.{state}" for state in ends} <= trigger.expect
    assert started.within.total_seconds() == 60 and started.after == {"prefect.flow-run.Pending"}
    assert {f"prefect.flow-run.{state}" for state in ("Running", "Cancelling", "Scheduled")} <= started.expect
    assert silent.within.total_seconds() == 900
    assert {f"prefect.flow-run.{event}" for event in ("Running", "heartbeat")} <= silent.after
    goes_on = ("heartbeat", "AwaitingRetry", "Paused", "Suspended")
    assert {f"prefect.flow-run.{event}" for event in goes_on} <= silent.expect


class Watching:
    """A server that has a pipeline's automations: which of them are switched off, and whether any works."""

    def __init__(self, off, triggers):
        self._off, self._triggers = off, triggers

    def read_automations(self, *, limit, offset):
        names = ("headway churn: not started", "headway churn: silent", "headway churn: late", "headway other: silent")
        return [SimpleNamespace(name=name, enabled=name != self._off) for name in names][offset:]

    def request(self, method, path):
        return httpx.Response(200, json={"server": {"services": {"triggers": {"enabled": self._triggers}}}})


@pytest.mark.parametrize(
    ("off", "triggers", "said"),
    [
        (None, True, []),
        ("headway churn: silent", True, ["automation 'headway churn: silent' is switched off"]),
        ("headway churn: late", True, []),
        ("headway other: silent", True, []),
        (None, False, ["PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED is false on the server"]),
    ],
)
def test_it_is_said_when_nothing_watches(off, triggers, said):
    found = lost_run_problems(Watching(off, triggers), "churn")
    assert all(why.startswith(words) for why, words in zip(found, said, strict=True))


def test_flow_runs_say_every_thirty_seconds_that_they_live_and_a_secret_is_a_reference_that_the_worker_resolves(loaded):
    alive, secret = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}, "{{ prefect.blocks.secret.db-password }}"
    for secrets, env in (({}, alive), ({"DB_PASSWORD": "db-password"}, alive | {"DB_PASSWORD": secret})):
        assert all(each["work_pool"]["job_variables"]["env"] == env for each in yaml_entries(loaded(secrets=secrets)))


def test_a_secret_that_stands_in_the_file_itself_is_refused_and_not_repeated(loaded):
    with pytest.raises(ConfigError, match="is not the name of a Secret block") as error:
        loaded(secrets={"DB_PASSWORD": "Hunter2 is it"})
    assert "Hunter2" not in str(error.value)
