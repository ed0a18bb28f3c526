"""What a pipeline needs on a server, as plain values."""

import uuid

import pytest
import yaml

from flows.config.pipeline import read_pipeline
from flows.config.production import FLOWS, ScheduleConfig
from flows.orchestration.deploying.plan import ENTRYPOINTS, automations, entries, load_flow, queues_of
from headway.errors import ConfigError

PIPELINE = {"name": "churn", "source": {"format": "csv", "path": "data/{span}.csv"}, "label": "y"}


@pytest.fixture
def loaded(tmp_path):
    def read(**sections):
        (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(PIPELINE | sections))
        return read_pipeline(tmp_path)

    return read


def test_a_deployment_of_each_flow_is_named_after_the_pipeline(loaded, tmp_path):
    found = entries(loaded(schedule={"retrain": "0 5 2 * *"}))
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
    assert entries(loaded(queues={"tensorflow": "gpu"})) == entries(loaded())
    assert queues_of(loaded(queues={"tensorflow": "gpu"})) == ["data", "gpu"]


def test_the_command_line_has_the_last_word_on_the_schedule(loaded):
    schedule = {"retrain": "0 5 2 * *", "monitor": "0 7 * * *", "timezone": "America/New_York"}
    retrain = ScheduleConfig(retrain="1 1 1 * *", timezone="Europe/Berlin")
    found = entries(loaded(schedule=schedule), retrain=retrain)
    timings = {each["entrypoint"]: [(s["cron"], s["timezone"]) for s in each["schedules"]] for each in found}
    assert timings == {
        ENTRYPOINTS["retrain"]: [("1 1 1 * *", "Europe/Berlin")],
        ENTRYPOINTS["backfill"]: [],
        ENTRYPOINTS["predict"]: [],
        ENTRYPOINTS["monitor"]: [("0 7 * * *", "America/New_York")],
    }
    assert not any(each["schedules"] for each in entries(loaded(schedule="0 5 2 * *"), retrain=False))


@pytest.mark.parametrize("name", ENTRYPOINTS)
def test_the_form_of_each_flow_checks_and_explains_every_parameter(name):
    for parameter, field in load_flow(name).parameters.properties.items():
        assert field.get("description"), f"{name}.{parameter} is not described"
        assert {"type", "anyOf", "enum"} & set(field), f"{name}.{parameter} has no type"


def test_alarms_are_automations_that_tell_each_block(loaded):
    deployments = {name: uuid.uuid4() for name in ENTRYPOINTS}
    blocks = {"slack-webhook/ops": uuid.uuid4(), "email/team": uuid.uuid4()}
    found = {a.name: a for a in automations(loaded(), deployments=deployments, blocks=blocks)}
    assert {f"headway churn: {alarm}" for alarm in ("failed", "held", "rejected", "late", "drifting")} <= set(found)
    failed, held = found["headway churn: failed"], found["headway churn: held"]
    assert {action.block_document_id for action in failed.actions} == set(blocks.values())
    assert failed.trigger.match_related.model_dump()["prefect.resource.id"] == sorted(
        f"prefect.deployment.{id}" for id in deployments.values()
    )
    assert (
        held.trigger.expect == {"prefect.flow-run.Held"} and held.trigger.match_related == failed.trigger.match_related
    )
    assert found["headway churn: late"].trigger.within.total_seconds() == 3600


def test_without_a_block_nobody_is_told(loaded):
    found = automations(loaded(), deployments={"retrain": uuid.uuid4()}, blocks={})
    assert found == []


def test_a_secret_is_a_reference_that_the_worker_resolves(loaded):
    found = entries(loaded(secrets={"DB_PASSWORD": "db-password"}))
    for entry in found:
        assert entry["work_pool"]["job_variables"]["env"] == {"DB_PASSWORD": "{{ prefect.blocks.secret.db-password }}"}


def test_a_secret_that_stands_in_the_file_itself_is_refused_and_not_repeated(loaded):
    with pytest.raises(ConfigError, match="is not the name of a Secret block") as error:
        loaded(secrets={"DB_PASSWORD": "Hunter2 is it"})
    assert "Hunter2" not in str(error.value)
