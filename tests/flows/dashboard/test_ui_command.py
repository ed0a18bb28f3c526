"""What `headway ui` prints and opens, without a server: the address signs in, and no command line holds its token."""

import json
import stat
import threading
import time
import webbrowser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from fastapi.testclient import TestClient

from tfcore.serving import server


@pytest.fixture
def ui(project, typed, monkeypatch):
    """ui(*options, while_served=...) -> what `headway ui` printed, and the application that it would have served."""

    def run(*options, while_served=lambda: None):
        served = []
        monkeypatch.setattr(server, "run", lambda app, listener: (served.append(app), while_served()))
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


def test_the_browser_is_opened_without_the_token_on_a_command_line(ui, monkeypatch):
    opened, kept = threading.Event(), {}

    def browser(address):
        page = Path(unquote(urlsplit(address).path))
        kept.update(address=address, page=page, text=page.read_text(), mode=stat.S_IMODE(page.parent.stat().st_mode))
        opened.set()
        time.sleep(0.2)  # as one in the terminal, which does not return: it is not waited for

    monkeypatch.setattr(webbrowser, "open", browser)
    printed, _ = ui("--open", while_served=lambda: opened.wait(60))
    url = next(line.strip() for line in printed.splitlines() if "?token=" in line)
    assert kept["address"].startswith("file://") and "token" not in kept["address"]
    assert f'content="0; url={url}"' in kept["text"]
    assert kept["mode"] == 0o700 and not kept["page"].parent.exists()
