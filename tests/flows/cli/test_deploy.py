"""headway deploy without a server: mistakes as sentences."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.ports import free_port


@pytest.fixture
def pipeline(tmp_path):
    folder = tmp_path / "churn"
    folder.mkdir()
    (folder / "pipeline.yaml").write_text(
        'name: churn\nsource: {format: csv, path: "data/{span}.csv"}\nlabel: y\nschedule: "0 5 2 * *"\n'
    )
    return folder


def test_without_a_server_the_fix_is_named(typed, pipeline, monkeypatch, tmp_path):
    from prefect.settings import PREFECT_API_URL, temporary_settings

    for more in ([], ["--remove"]):
        with temporary_settings(restore_defaults={PREFECT_API_URL}):
            done = typed("deploy", pipeline, *more, check=2)
        assert "no Prefect server is named" in done.stderr and "export PREFECT_API_URL=" in done.stderr
        with temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{free_port()}/api"}):
            done = typed("deploy", pipeline, *more, check=2)
        assert "does not answer" in done.stderr and "it ends in /api" in done.stderr


@pytest.mark.parametrize(
    ("status", "answer"), [(502, "/api/health answers 502 text/html"), (200, "/api/health answers 200 text/html")]
)
def test_a_proxy_whose_server_is_away_and_its_page_are_no_server(typed, pipeline, status, answer):
    from prefect.settings import PREFECT_API_URL, temporary_settings

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("Content-Type", "text/html")
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{server.server_port}/api"}):
            done = typed("deploy", pipeline, check=2)
        server.shutdown()
    assert "the Prefect server does not answer: http://127.0.0.1:" in done.stderr and answer in done.stderr
    assert "start the server, or correct the address" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--schedule", "hourly"], "--schedule: retrain: 'hourly' is not a cron expression of five fields"),
        (["--schedule", "0 5 2 * *", "--timezone", "Nowhere"], "'Nowhere' is not a time zone"),
        (["--remove", "--schedule", "0 5 2 * *"], "--schedule: --remove sets nothing"),
        (["--timezone", "Europe/Berlin"], "a time zone needs a schedule, and none is given"),
    ],
)
def test_a_wrong_schedule_is_a_sentence(arguments, words, typed, pipeline):
    assert words in typed("deploy", pipeline, *arguments, check=2).stderr


def test_two_pipelines_of_one_name_are_refused(typed, pipeline):
    done = typed("deploy", pipeline, pipeline, check=2)
    assert "two of these pipelines are called 'churn'" in done.stderr
