"""docs/operations.md, typed as a new user does: ten commands to a schedule that has fired, with secrets planted wherever a user
keeps them; then a look for these at everything that was written, and a backup that is restored elsewhere.

One server for the whole file: the tests are one story, in the order in which they stand.
"""

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from tests.flows.churn import PIPELINE
from tests.flows.test_secrets import texts_of
from tests.prefect_server import PrefectServer
from tests.serving import serving
from tests.waiting import until
from tests.webhook import Webhook

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")

pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.timeout(1200)]

MODULE = """
import os
import sys


def _say():
    text = f"cannot log in with {os.environ['SERVICE_TOKEN']} or {os.environ['DB_PASSWORD']}"
    print(text)
    print(text, file=sys.stderr, flush=True)
    return text


def worth(label, prediction, columns):
    raise ValueError(_say())


def model(*arguments):
    raise ValueError(_say())
"""
LEAKS = {
    "leak-metric": PIPELINE.replace("slices: []", 'slices: [], metrics: {"own:worth": lower}'),
    "leak-model": PIPELINE.replace("{name: mlp, hidden: [4]}", '{name: "own:model"}'),
    "leak-source": PIPELINE.replace("data/{span}.parquet", "${LANDING}"),
}
"""Pipelines that fail while they hold secrets: in a user's metric, in a user's model, at an address."""

PLANTED = {
    "SERVICE_TOKEN": "planted-service-token-71",
    "AWS_SECRET_ACCESS_KEY": "planted/aws+secret-72",
    "MLFLOW_TRACKING_URI": "http://somebody:planted-mlflow-73@127.0.0.1:9",
    "LANDING": "https://acct.blob.example/c/{span}.parquet?sv=2024&sig=planted-sas-74%2Bx&se=1",
    "WAREHOUSE": "Server=w;Uid=me;Password=planted-warehouse-75;",
}
"""In the environment of the worker, and of who types."""
BLOCK, HOOK, HEADER, QUERY = "planted-block-76", "planted-hook-77", "planted-header-78", "planted-query-79"
"""In a Secret block, in a notification block's address, in requests to headway serve."""
SECRETS = [
    "planted-service-token-71",
    "planted/aws+secret-72",
    "planted-mlflow-73",
    "planted-sas-74",
    "planted-warehouse-75",
]
SECRETS += [BLOCK, HOOK, HEADER, QUERY]


def lines_of(title):
    """The lines of the first block below a heading of the page."""
    block = PAGE.partition(f"## {title}\n")[2].partition("```bash\n")[2].partition("\n```")[0]
    assert block, title
    return [line.strip() for line in block.splitlines()]


def ten_commands():
    """The lines of the page's first block."""
    lines = lines_of("From nothing to a scheduled retrain of your own pipeline")
    numbers = [re.search(r"# (\d+)\b", line) for line in lines]
    assert [int(number[1]) for number in numbers] == list(range(1, 11)), lines
    return lines


class Place:
    """A new user's machine: a home, a clone of Headway beside it, and a free port."""

    def __init__(self, folder, land):
        self.folder, self.home, self.clone = folder, folder / "home", folder / "headway"
        self.server = PrefectServer(self.clone)
        self.port, self.files = self.server.port, self.server.home
        hidden = shutil.ignore_patterns(
            ".git", ".venv", ".headway", "store", "data", "*_cache", "__pycache__", "*.egg-info"
        )
        shutil.copytree(ROOT, self.clone, ignore=hidden)
        venv = self.clone / ".venv"
        venv.mkdir()
        for entry in Path(sys.prefix).iterdir():
            if not entry.name.startswith(".installed"):
                (venv / entry.name).symlink_to(entry)
        (venv / ".installed").touch()  # what `make setup` would take minutes for
        for name, text in {"churn": PIPELINE, **LEAKS}.items():
            pipeline = self.home / name
            pipeline.mkdir(parents=True)
            (pipeline / "pipeline.yaml").write_text(text.replace("name: churn", f"name: {name}"))
            (pipeline / "own.py").write_text(MODULE)
            for month in ("2024-01", "2024-02", "2024-03"):
                land(pipeline / "data", month)
        names = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        self.env = names | PLANTED | {"HOME": str(self.home), "HEADWAY_PREFECT_PORT": str(self.port), "COLUMNS": "200"}
        self.said = []

    def here(self, text):
        """What a page says, with this machine's port."""
        return text.replace("4200", str(self.port))

    def type(self, text, *, check=True, **more):
        """Type lines into a shell in Headway's folder."""
        env = self.env | {"HEADWAY_TYPED": "1", **more}
        done = subprocess.run(
            ["bash", "-c", f"set -e\n{text}"],
            cwd=self.clone,
            env=env,
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
        self.said.append(done.stdout + done.stderr)
        assert not check or done.returncode == 0, f"{text}\nexit {done.returncode}\n{self.said[-1]}"
        return done

    def headway(self, *arguments, **more):
        line = " ".join(map(str, arguments))
        return self.type(f"{self.shell()}\nexec headway {line}", **more)

    def shell(self):
        """The lines of the ten that set the shell up."""
        return "\n".join(self.here(line) for line in ten_commands() if line.startswith("export"))


@pytest.fixture(scope="module")
def place(tmp_path_factory, land):
    place = Place(tmp_path_factory.mktemp("machine"), land)
    with Webhook() as place.hook:
        yield place
        place.type("make down", check=False)


def test_the_ten_commands_end_with_a_promoted_model_and_a_schedule(place):
    lines = [f"echo '@@ {k}' >&2; echo '@@ {k}'\n{line}" for k, line in enumerate(ten_commands(), start=1)]
    done = place.type(place.here("\n".join(lines)))
    out = dict(zip(range(11), done.stdout.split("@@ "), strict=True))
    assert "Prefect is up" in out[2] and (place.files / "auth").read_text().strip() not in done.stdout + done.stderr
    assert "Version 1 is promoted" in out[6] and (place.home / "churn" / "schema.pbtxt").is_file()
    assert "made deployment retrain/churn: runs 0 5 2 * * UTC" in out[7] and "nobody is told of a failure" in out[7]
    by_hand = [run for run in place.server.flow_runs("churn") if not run["auto_scheduled"]]
    wanted = [("churn 2024-01 to 2024-03: already champion", "COMPLETED")]
    assert [(run["name"], run["state"]["type"]) for run in by_hand] == wanted
    assert re.search(r"^\D*1\b.*champion", out[9], re.MULTILINE), out[9]
    assert "nothing new to check" in out[10]


BLOCKS = """
import os
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.blocks.system import Secret
Secret(value=os.environ["TYPED_BLOCK"]).save("db-password")
CustomWebhookNotificationBlock(name="ops", url=os.environ["TYPED_HOOK"], secrets={"token": os.environ["TYPED_TOKEN"]},
    json_data={"text": "{{subject}}: {{body}}"}).save("ops")
"""


def test_runs_that_fail_with_secrets_in_hand_are_told_without_them(place, land):
    land(place.home / "churn" / "data", "2024-04")  # what the schedule will find, a minute from now
    said = place.headway("deploy ~/churn --schedule '* * * * *'").stdout
    assert "set the schedule of retrain/churn: * * * * * UTC" in said
    extra = "\nsecrets: {DB_PASSWORD: db-password}\nalarms: {notify: custom-webhook/ops, when: [failed]}\n"
    for name in LEAKS:
        config = place.home / name / "pipeline.yaml"
        config.write_text(config.read_text() + extra)
    folders = " ".join(f"~/{name}" for name in LEAKS)
    said = place.headway("deploy", folders, check=False)
    assert said.returncode == 2 and "prefect block create" in said.stderr, said.stderr
    # in an environment of its own: what is typed into the page of the server is nowhere on this machine
    made = {"TYPED_BLOCK": BLOCK, "TYPED_HOOK": f"{place.hook.url}/{{{{token}}}}", "TYPED_TOKEN": HOOK}
    place.type(f"{place.shell()}\npython -c '{BLOCKS}'", **made)
    assert place.headway("deploy", folders).stdout.count("made deployment retrain/") == 3

    started = {name: place.server.start(f"retrain/{name}") for name in LEAKS}

    def ended():
        found = {name: place.server.flow_run(run) for name, run in started.items()}
        return (
            found if all(run["state"]["type"] in ("FAILED", "CRASHED", "COMPLETED") for run in found.values()) else None
        )

    found = until(ended, 180, lambda: {name: place.server.flow_run(run)["state"] for name, run in started.items()})
    messages = {name: run["state"]["message"] for name, run in found.items()}
    assert {run["state"]["type"] for run in found.values()} == {"FAILED"}, messages
    for name in ("leak-metric", "leak-model"):
        assert "cannot log in with ${SERVICE_TOKEN} or ${DB_PASSWORD}" in messages[name]
    # not beside the flow runs: a pipeline's lock is held by one of them
    typed = {"leak-model": place.headway("run ~/leak-model", check=False, DB_PASSWORD=BLOCK)}
    typed["leak-source"] = place.headway("run ~/leak-source --json", check=False)
    assert typed["leak-model"].returncode == 2 and "cannot log in with ${SERVICE_TOKEN}" in typed["leak-model"].stderr
    assert typed["leak-source"].returncode == 2 and "sig=***&" in typed["leak-source"].stdout

    def untold():
        return [name for name in LEAKS if not any(name in text for _, text in place.hook.told)]

    for _ in range(3):  # on SQLite an event may get lost (docs/prefect.md: Databases): that run fails once more
        with contextlib.suppress(AssertionError):
            until(lambda: not untold(), 60)
        for name in untold():
            place.server.start(f"retrain/{name}")
    assert not untold(), place.hook.told
    assert all(path == f"/{HOOK}" for path, _ in place.hook.told)


def test_requests_to_headway_serve_leave_no_header_and_no_query_behind(place):
    with serving(place.home / "churn", env=place.env) as server:
        for body in ({"instances": [{"x": 1.0, "c": "a"}]}, {"instances": [{"x": "not a number", "c": "a"}]}):
            request = urllib.request.Request(f"{server.url}:predict?access_token={QUERY}", json.dumps(body).encode())
            request.add_header("Authorization", f"Bearer {HEADER}")
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    place.said.append(answer.read().decode())
            except urllib.error.HTTPError as refused:
                place.said.append(refused.read().decode())
                assert refused.code == 400
        server.process.send_signal(signal.SIGTERM)
        out, err = (said.decode() for said in server.process.communicate(timeout=30))
        place.said.append(server.text + out + err)


def test_the_schedule_fires_and_promotes_what_has_landed(place):
    def runs():
        found = place.server.flow_runs("churn")
        return [(run["name"], run["auto_scheduled"], run["state"]["message"]) for run in found]

    until(lambda: any(scheduled and name.endswith(": promoted 2") for name, scheduled, _ in runs()), 240, runs)
    champion = json.loads((place.home / "churn" / "store" / "models" / "churn" / "champion.json").read_text())
    assert champion["version"] == 2


def _rows(database):
    """(table, row) of every row of the server's database: a long text lies in several pages of the file."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                yield f"{database.name}: {table}", " ".join(map(str, row))


def _forms(secret):
    encoded = base64.b64encode(secret.encode()).decode().rstrip("=")
    return {secret, urllib.parse.quote(secret, safe=""), json.dumps(secret)[1:-1], encoded}


def test_no_secret_is_in_anything_that_was_written_or_said(place):
    (database,) = place.files.rglob("prefect.db")
    everything = [
        *texts_of(place.home),
        *texts_of(place.files),
        *_rows(database),
        *(("said", text) for text in place.said),
    ]
    everything += [("told", text) for _, text in place.hook.told]
    read = "\n".join(text for _, text in everything)
    for witness in ("cannot log in with ${SERVICE_TOKEN}", "prefect.flow-run.Completed", "churn-verdict"):
        assert witness in read, "the search does not see what is there"
    password = (place.files / "auth").read_text().strip().partition(":")[2]
    found = [
        (str(where), form, text[max(0, text.index(form) - 200) : text.index(form) + 80])
        for where, text in everything
        for secret in [*SECRETS, password]
        for form in _forms(secret)
        if form in text and where != place.files / "auth"
    ]
    assert not found, "\n".join(map(str, found))


def test_results_are_never_pickles_and_nobody_else_reads_the_servers_files(place):
    storage = [path for path in place.folder.rglob("*") if path.parent.name == "storage" and "prefect" in str(path)]
    assert not storage, "nothing is persisted by Prefect"
    for path in [place.files, *place.files.rglob("*"), *(place.home / "churn" / "store").rglob("*")]:
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                assert file.read(2) not in (b"\x80\x03", b"\x80\x04", b"\x80\x05"), f"{path} is a pickle"
        if path.is_relative_to(place.files):
            assert path.is_symlink() or path.stat().st_mode & 0o007 == 0, path
    assert place.files.stat().st_mode & 0o077 == 0
    assert (place.home / "churn" / "store").stat().st_mode & 0o007 == 0


def test_a_store_and_a_server_come_back_from_their_backup(place):
    headway = place.headway("deploy ~/churn --schedule '0 5 2 * *'").stdout  # so that nothing runs meanwhile
    assert "set the schedule of retrain/churn" in headway
    until(
        lambda: all(run["state"]["type"] not in ("RUNNING", "PENDING") for run in place.server.flow_runs("churn")), 180
    )
    place.type("\n".join([place.shell(), *lines_of("Backup")]))
    assert "every byte is as written" in place.headway("verify ~/churn --set store=$HOME/backup/churn").stdout
    before = {
        path.relative_to(place.home): path.read_bytes() for path in (place.home / "churn/store/models").rglob("*.json")
    }
    said = place.type("\n".join([place.shell(), *lines_of("Restore")])).stdout
    assert "every byte is as written" in said and "0 5 2 * *" in said
    assert re.search(r"^\D*2\b.*champion", said, re.MULTILINE), said
    assert {path: (place.home / path).read_bytes() for path in before} == before
    assert place.server.start("retrain/churn")  # the server takes runs, with the password that it had
