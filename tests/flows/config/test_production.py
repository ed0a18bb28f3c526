"""What pipeline.yaml says of production: schedules, alarms, queues; each mistake is a sentence that names the key."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flows.config.pipeline import read_pipeline
from flows.config.production import FLOWS, check_cron, check_timezone
from headway.errors import ConfigError

PIPELINE = {"name": "churn", "source": {"format": "csv", "path": "data/{span}.csv"}, "label": "y"}


def _read(folder, **sections):
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(PIPELINE | sections))
    return read_pipeline(folder)


@pytest.mark.parametrize(
    "schedule", ["0 5 2 * *", {"retrain": "0 5 2 * *"}, {"retrain": "0  5 2 * *", "timezone": "UTC"}]
)
def test_a_cron_expression_alone_is_that_of_retrain(schedule, tmp_path):
    config = _read(tmp_path, schedule=schedule).pipeline.schedule
    assert (config.of("retrain"), config.timezone) == ("0 5 2 * *", "UTC")
    assert all(config.of(flow) is None for flow in FLOWS if flow != "retrain")


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"schedule": "@daily"}, "'@daily' is not a cron expression of five fields"),
        ({"schedule": "0 5 2 *"}, "'0 5 2 *' is not a cron expression of five fields"),
        ({"schedule": "0 25 2 * *"}, "the hour is 0 to 23"),
        ({"schedule": "0 5 2 foo *"}, "the month is 1 to 12"),
        ({"schedule": "*/0 5 2 * *"}, "the minute is 0 to 59"),
        ({"schedule": "0 5 31 2 *"}, "'0 5 31 2 *' never comes: no such month has a day 31"),
        ({"schedule": "0 5 31 4,jun,9-11/2 *"}, "never comes: no such month has a day 31"),
        ({"schedule": {"monitr": "0 5 2 * *"}}, "schedule.monitr: unknown key; did you mean 'monitor'?"),
        (
            {"schedule": {"retrain": "0 5 2 * *", "timezone": "America/NewYork"}},
            "is not a time zone; did you mean 'America/New_York'?",
        ),
        ({"schedule": {"backfill": "0 5 2 * *"}}, "schedule.backfill: unknown key"),
        ({"schedule": {"retrain": {"cron": "0 5 2 * *"}}}, "schedule.retrain: "),
        ({"alarms": {"notify": "ops"}}, "'ops' is not type/name of a notification block, such as slack-webhook/ops"),
        ({"alarms": {"when": ["fail"]}}, "did you mean 'failed'?"),
        ({"queues": {"tensorflwo": "gpu"}}, "did you mean 'tensorflow'? (got 'tensorflwo')"),
        (
            {"queues": {"tensorflow": "GPU 1"}},
            "queues.tensorflow: should be like ^[a-z][a-z0-9_-]{0,62}$ (got 'GPU 1')",
        ),
        (
            {"arrival": {"done": "data/_SUCCESS"}},
            "arrival.done needs the placeholders of source.path, which are: {span}",
        ),
        ({"predictions": {"path": "incoming.csv"}}, "predictions.path needs the placeholders of source.path"),
    ],
)
def test_a_mistake_names_the_key_and_what_would_be_right(sections, words, tmp_path):
    with pytest.raises(ConfigError) as raised:
        _read(tmp_path, **sections)
    assert words in str(raised.value) and "pipeline.yaml" in str(raised.value)


def test_paths_are_relative_to_the_pipeline(tmp_path):
    loaded = _read(
        tmp_path, arrival={"done": "data/{span}.done"}, predictions={"path": "in/{span}.csv", "output": "out"}
    )
    assert loaded.pipeline.arrival.done == str(tmp_path / "data" / "{span}.done")
    assert loaded.pipeline.predictions.path == str(tmp_path / "in" / "{span}.csv")
    assert loaded.pipeline.predictions.output == str(tmp_path / "out")


_ITEM = st.builds("{}/{}".format, st.sampled_from(["*", "1-5", "3"]), st.integers(1, 9)) | st.sampled_from(
    ["*", "1", "2-4", "1,3,5", "mon", "jan", "sun-tue", "59", "24", "0", "7", "x", "", "1-", "5-2", "*/0", "*/00"]
)


@pytest.mark.slow  # imports Prefect
@given(st.lists(_ITEM, min_size=5, max_size=5).map(" ".join))
def test_what_passes_is_a_cron_expression_for_prefect_too(text):
    from prefect._vendor.croniter import croniter

    try:
        cron = check_cron(text)
    except ValueError:
        return
    assert croniter.is_valid(cron)
    assert croniter(cron, 1704067200).get_next()  # and a time comes


@pytest.mark.parametrize(
    "text", ["*/15 * * * *", "5,35 1-4 1-7 jan-mar 0-7", "0 5 29 2 *", "0 5 31 2 mon", "0 5 30/1 2-4 *"]
)
def test_usual_expressions_pass(text):
    assert check_cron(text) == text


@pytest.mark.parametrize("name", ["Mars/Phobos", "", "America", "../../etc/passwd", "/etc/localtime"])
def test_a_time_zone_that_is_none_is_refused(name):
    with pytest.raises(ValueError, match="is not a time zone"):
        check_timezone(name)


@pytest.mark.parametrize(("queue", "train_queue"), [(None, None), ("gpu", "gpu"), ("data", None)])
def test_the_training_has_a_queue(queue, train_queue, tmp_path):
    assert _read(tmp_path, queues={"tensorflow": queue} if queue else {}).pipeline.train_queue == train_queue
