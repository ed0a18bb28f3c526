"""The alarms `late` and `held`, from a real server through a notification block to who listens."""

import json
import os
import signal
import time

import pytest

from tests.waiting import until
from tests.webhook import Webhook

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(600)]
LATE_SECONDS = 10
"""The automation's own are a minute at least."""


@pytest.fixture
def hook(host):
    """What the notification block custom-webhook/chaos posts to."""
    from prefect.blocks.notifications import CustomWebhookNotificationBlock

    with Webhook() as hook:
        with host.reached():
            block = CustomWebhookNotificationBlock(
                name="chaos", url=hook.url, json_data={"text": "{{subject}}: {{body}}"}
            )
            block.save("chaos", overwrite=True)
        yield hook


def test_who_is_to_be_told_hears_of_a_run_that_is_late_and_of_a_model_that_is_held(host, hook, deployed, row):
    def told():
        return [json.loads(body)["text"] for _, body in hook.told]

    extra = "alarms: {notify: custom-webhook/chaos, when: [late, held], late_minutes: 1}\n"
    pipeline = deployed("alarmed", extra)
    file = pipeline.folder / "pipeline.yaml"
    file.write_text(file.read_text().replace("gate: {", "gate: {hold: true, "))
    pipeline.fast()
    assert host.hurry("headway alarmed: late", LATE_SECONDS)["trigger"]["within"] == 60.0

    worker = host.pid("worker")
    os.kill(worker, signal.SIGSTOP)
    try:
        began = time.monotonic()
        run = host.start("retrain/alarmed")
        until(told, about=lambda: host.flow_run(run)["state"])
        seconds = time.monotonic() - began
        late = host.flow_run(run)
        assert len(told()) == 1 and told()[0].startswith("headway: alarmed late: retrain "), told()
    finally:
        os.kill(worker, signal.SIGCONT)
    row("no worker takes the run (alarm late)", late, seconds, "nothing: it runs once a worker is there")

    ended = host.ended(run, 180)
    assert ended["name"].endswith(": needs a person"), ended["state"]
    assert pipeline.champion() is None
    until(lambda: len(told()) > 1, about=told)
    held = "headway: alarmed held: retrain alarmed 2024-01 to 2024-02: needs a person: "
    assert told()[1].startswith(held), told()
    version = [found.number for found in pipeline.registry().versions()]
    time.sleep(1.0)
    assert len(told()) == 2, "each is told once"
    host.headway("promote", pipeline.folder)
    assert pipeline.champion() == 1 and version in ([], [1])
    pipeline.check(host)
