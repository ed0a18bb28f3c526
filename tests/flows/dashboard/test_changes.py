"""Promote and rollback: only what a person confirmed, and only while what the page showed still holds."""

import re

import pytest

from flows.dashboard.opened_stores import opened
from headway.registry.registry import Registry
from tests.flows.dashboard.conftest import BASE

MODEL = "/stores/flights/models/flights"


def form_of(client, path):
    """The address and the fields of the form on a page."""
    html = client.get(path).text
    (action,) = re.findall(r'<form method="post" action="([^"]*)"', html)
    return action, dict(re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', html))


def send(client, action, fields):
    return client.post(action, data=fields, headers={"Origin": BASE})


def test_a_rollback_is_shown_confirmed_and_kept_with_its_reason(client, store):
    page = client.get(MODEL).text
    assert "version 2 is the champion" in page and "Roll back to version 1" in page
    action, fields = form_of(client, f"{MODEL}/rollback")
    answer = send(client, action, fields | {"reason": "  complaints\nfrom users "})
    assert answer.status_code == 303 and answer.headers["location"] == f"{MODEL}?changed=1"
    event = Registry(store, "flights").history()[-1]
    assert (event.kind, event.version, event.reason) == ("rollback", 1, "complaints from users")
    assert "Version 1 is the champion now." in client.get(answer.headers["location"]).text
    assert "rollback: version 1 is the champion of flights now" in client.said[-1]


def test_a_version_that_was_rolled_back_returns_only_by_force(client, store):
    action, fields = form_of(client, f"{MODEL}/versions/3/promote")
    assert "was rolled back" in client.get(f"{MODEL}/versions/3/promote").text
    refused = send(client, action, fields)
    assert refused.status_code == 409 and "was rolled back" in refused.text and "Nothing was changed" in refused.text
    assert Registry(store, "flights").history()[-1].version == 2
    assert send(client, action, fields | {"force": "yes"}).status_code == 303
    event = Registry(store, "flights").history()[-1]
    assert (event.kind, event.version, event.reason) == ("promote", 3, "asked for in the dashboard")


def test_a_champion_that_changed_after_the_page_was_made_wins(client, store):
    action, fields = form_of(client, f"{MODEL}/versions/1/promote")
    rollback = form_of(client, f"{MODEL}/rollback")
    Registry(store, "flights").promote(3, reason="somebody was faster", force=True)
    for where, given in ((action, fields | {"force": "yes"}), rollback):
        answer = send(client, where, given)
        assert answer.status_code == 409 and "version 3 became the champion" in answer.text
    assert Registry(store, "flights").history()[-1].version == 3


@pytest.mark.parametrize(
    "changed", [{"token": "0" * 64}, {"token": ""}, {"version": "1"}, {"against": "3"}, {"against": "x"}]
)
def test_a_form_that_was_changed_is_refused(client, store, changed):
    _, fields = form_of(client, f"{MODEL}/versions/3/promote")
    to = f"{MODEL}/versions/{changed.get('version', '3')}/promote"
    answer = send(client, to, fields | {"force": "yes"} | changed)
    assert answer.status_code == 409 and "this form is of another page" in answer.text
    assert Registry(store, "flights").history()[-1].version == 2


def test_the_form_of_one_change_does_not_make_another(client, store):
    _, fields = form_of(client, f"{MODEL}/rollback")
    answer = send(client, f"{MODEL}/versions/1/promote", fields)
    assert answer.status_code == 409
    assert Registry(store, "flights").history()[-1].version == 2


def test_what_is_no_form_is_refused(client):
    headers = {"Origin": BASE}
    assert client.post(f"{MODEL}/rollback", json={"token": "x"}, headers=headers).status_code == 415
    large = {"token": "x" * 100_000}
    assert client.post(f"{MODEL}/rollback", data=large, headers=headers).status_code == 413


def test_there_is_nothing_to_confirm_for_the_champion_itself(client):
    answer = client.get(f"{MODEL}/versions/2/promote")
    assert answer.status_code == 409 and "version 2 is the champion already" in answer.text


def test_a_store_without_its_pipeline_says_that_mlflow_is_not_told(project, show):
    alone = show([], [project / "store"])
    (slug,) = opened([], [str(project / "store")])
    assert "An MLflow server is not told" in alone.get(f"/stores/{slug}/models/flights/rollback").text
    assert "An MLflow server" not in show([project]).get(f"{MODEL}/rollback").text
