"""Who is refused: foreign hosts, other sites, who has no token, and addresses that lead out of the store."""

import pytest

from flows.dashboard.request_checks import POLICY, REPORT_POLICY
from tests.flows.dashboard.conftest import BASE, name_of

RUN = name_of(1)[0]
PAGES = [
    "/",
    "/stores/flights",
    "/stores/flights/runs",
    f"/stores/flights/runs/{RUN}",
    f"/stores/flights/runs/{RUN}/log",
    f"/stores/flights/runs/{RUN}/report",
    "/stores/flights/models/flights",
    "/stores/flights/models/flights/versions/2",
    "/stores/flights/models/flights/versions/1/promote",
    "/stores/flights/models/flights/rollback",
    "/stores/flights/spans",
]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_needs_the_token_and_says_how_to_get_in(project, show, page):
    outside = show([project], signed_in=False)
    answer = outside.get(page)
    assert answer.status_code == 401 and "the address that headway ui printed" in answer.text
    assert "flights" not in answer.text.replace(page, "")
    assert outside.get("/?token=guess").status_code == 401
    outside.cookies.set(outside.access.cookie, "guess")
    assert outside.get(page).status_code == 401


def test_the_token_opens_a_session_that_scripts_and_other_sites_do_not_see(project, show):
    outside = show([project], signed_in=False)
    answer = outside.get(f"/?token={outside.access.token}")
    cookie = answer.headers["set-cookie"]
    assert answer.status_code == 303 and answer.headers["location"] == "/"
    assert "HttpOnly" in cookie and "samesite=strict" in cookie.lower()
    assert outside.access.token not in cookie
    assert outside.get("/").status_code == 200
    # of a link in another page the redirect would come without the cookie
    again = outside.get(
        f"/?token={outside.access.token}", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    )
    assert again.status_code == 200 and again.headers["refresh"] == "0; url=/"


@pytest.mark.parametrize("other", ['a={"x": 1}', "a=b c", "flag", "name=\u00f6", 'a="x', "a[0]=1"])
def test_an_odd_cookie_of_another_server_on_this_machine_signs_nobody_out(project, show, other):
    outside = show([project], signed_in=False)
    for cookies in (f"{other}; {_cookie(outside)}", f"{_cookie(outside)}; {other}"):
        assert outside.get("/", headers={"Cookie": cookies.encode("latin-1")}).status_code == 200
    assert outside.get("/", headers={"Cookie": other.encode("latin-1")}).status_code == 401


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8765",
        "127.0.0.1.evil.example",
        "flights@evil.example",
        "",
        "127.0.0.1:x",
        "0.0.0.0",
    ],
)
def test_a_foreign_host_is_refused_before_anything_is_looked_at(client, host):
    for path in ("/", f"/?token={client.access.token}", "/static/live.js"):
        answer = client.get(path, headers={"Host": host})
        assert answer.status_code == 421 and "flights" not in answer.text


def test_a_tunnel_may_have_another_port(client):
    assert client.get("/", headers={"Host": "localhost:9000", "Cookie": _cookie(client)}).status_code == 200


def _cookie(client):
    return f"{client.access.cookie}={client.access.session}"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:8765"},
        {"Origin": "http://127.0.0.1:8766"},
        {"Origin": "http://evil.example"},
        {"Origin": BASE, "Sec-Fetch-Site": "cross-site"},
        {"Origin": BASE, "Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_form_of_another_site_changes_nothing(client, store, headers):
    before = (store.root / "models" / "flights" / "champion.json").read_bytes()
    fields = {"token": client.access.form_token("rollback", "flights", "flights", 1, 2), "version": "1", "against": "2"}
    answer = client.post("/stores/flights/models/flights/rollback", data=fields, headers=headers)
    assert answer.status_code == 403
    assert (store.root / "models" / "flights" / "champion.json").read_bytes() == before


def test_another_site_cannot_load_a_page_as_a_resource(client):
    assert client.get("/", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}).status_code == 403
    assert client.get("/", headers={"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}).status_code == 200
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH"):
        assert client.request(method, "/stores/flights").status_code == 405


@pytest.mark.parametrize(
    "path",
    [
        "/stores/flights/runs/..%2f..%2fpipeline.yaml",
        "/stores/flights/runs/%2e%2e",
        "/stores/flights/runs/..%5c..%5cpipeline",
        "/stores/flights/runs/%00",
        "/stores/flights/runs/..%2fmonitor%2fflights/log",
        "/stores/flights/runs/..%252f..%252fpipeline.yaml/report",
        "/stores/flights/runs/.hidden",
        "/stores/flights/models/%2e%2e%2f%2e%2e",
        "/stores/flights/models/..%2fmodels%2fflights",
        "/stores/flights/models/flights/versions/..%2f1",
        "/stores/flights/models/flights/versions/-1",
        "/stores/flights/models/flights/versions/99",
        "/stores/..%2f..",
        "/stores/other/runs",
        "/static/..%2f..%2fweb_app.py",
        "/docs",
        "/openapi.json",
    ],
)
def test_an_address_that_leads_elsewhere_finds_nothing(client, project, path):
    (project / "store" / "runs" / ".hidden.json").write_text("{}")
    answer = client.get(path)
    assert answer.status_code in (404, 405) and "arr_delay" not in answer.text
    assert not client.said, "no error of ours"


def test_a_link_in_the_store_is_not_followed_out_of_it(client, project):
    report = project / "store" / "runs" / f"{RUN}.html"
    report.symlink_to(project / "pipeline.yaml")
    assert client.get(f"/stores/flights/runs/{RUN}/report").status_code == 404
    log = project / "store" / "runs" / f"{RUN}.log"
    log.unlink()
    log.symlink_to(project / "pipeline.yaml")
    for path in (f"/stores/flights/runs/{RUN}", f"/stores/flights/runs/{RUN}/log"):
        assert "arr_delay" not in client.get(path).text
    record = project / "store" / "runs" / f"{RUN}.json"
    record.rename(project / "elsewhere.json")
    record.symlink_to(project / "elsewhere.json")
    (record.parent / "20260101-000000-loop.json").symlink_to("20260101-000000-loop.json")
    assert client.get("/stores/flights").text.count("is a link that leads out of the store") == 2
    assert client.get(f"/stores/flights/runs/{RUN}").status_code == 404


@pytest.mark.parametrize("page", PAGES)
def test_every_answer_has_the_headers(client, page):
    answer = client.get(page)
    assert answer.status_code == 200, answer.text
    policy = REPORT_POLICY if page.endswith("/report") else POLICY
    assert answer.headers["content-security-policy"] == policy
    assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]
    assert answer.headers["x-frame-options"] == "DENY" and answer.headers["x-content-type-options"] == "nosniff"
    assert (
        answer.headers["cache-control"] == "no-store"
        and answer.headers["cross-origin-resource-policy"] == "same-origin"
    )
    assert "<script>alert" not in answer.text or answer.headers["content-type"].startswith("text/plain")


def test_the_page_of_a_bug_has_the_headers_and_says_nothing_of_it(client, monkeypatch):
    def broken(*arguments, **settings):
        raise RuntimeError("arr_delay")

    monkeypatch.setattr("flows.dashboard.web_app.runs_page", broken)
    answer = client.get("/stores/flights/runs")
    assert answer.status_code == 500 and "A bug in Headway" in answer.text and "arr_delay" not in answer.text
    assert answer.headers["content-security-policy"] == POLICY and answer.headers["cache-control"] == "no-store"
    assert "RuntimeError: arr_delay" in client.said[-1]


def test_get_writes_nothing(client, project):
    def state():
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in project.rglob("*")}

    before = state()
    for page in PAGES:
        assert client.get(page).status_code == 200
    assert state() == before
