"""What `headway ui` prints, without a server: the address signs in."""

import json
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient

from tfcore.serving import server


@pytest.fixture
def ui(project, typed, monkeypatch):
    """ui(*options) -> what `headway ui` printed, and the application that it would have served."""

    def run(*options):
        served = []
        monkeypatch.setattr(server, "run", lambda app, listener: served.append(app))
        return typed("ui", project, "--port", 0, *options, check=0).stdout, *served

    return run


def _signs_in(app, url):
    client = TestClient(app, base_url=url.partition("/?")[0], follow_redirects=False)
    return client.get(urlsplit(url).path + "?" + urlsplit(url).query).status_code == 303


def test_the_printed_address_signs_in(ui):
    printed, app = ui()
    assert _signs_in(app, next(line.strip() for line in printed.splitlines() if "?token=" in line))
    printed, app = ui("--json")
    value = json.loads(printed)
    assert _signs_in(app, value["url"]) and list(value["stores"]) == ["flights"]
