"""Makes store_c0a2370c.tar.xz and deployments_c0a2370c.json: what users of commit c0a2370c have on their disks and servers.

    git worktree add ../then c0a2370c                  # with an environment of its own in .venv
    unshare --uts sh -c 'hostname example; ../then/.venv/bin/python -P tests/flows/older_store/make.py /srv/pipelines .'

The first folder, which is new, is where the pipelines run, and stands in what they write; the second gets the two files. Both
files are kept as they are: tests/flows/test_older_store.py tries them with today's code.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

MONTHS = ["2024-01", "2024-02", "2024-03", "2024-04"]
"""The pipelines have seen all but the last, which is there to retrain with."""

PIPELINES = {
    "visits": """
name: visits                       # rows of a patient are in one split
source: {format: csv, path: "data/{span}.csv"}
label: returned == 'yes'
columns: {"*": auto, note: ignore}
split: {key: patient, eval: 0.4}
model: {hidden: [8], embedding: 2}
training: {steps: 48, batch_size: 64, steps_per_call: 16, checkpoint_every_steps: 48, learning_rate: 0.02}
evaluation: {slices: [ward]}
gate: {tolerance: {auc: 0.2, loss: 0.3}}
""",
    "sales": """
name: sales                        # the last month is eval; rows have weights
source: {format: parquet, path: "data/{span}.parquet"}
label: revenue
columns: {id: {role: key}, day: {role: time}, weight: {role: weight}, shop: vocabulary, area: standardize, opened: auto}
split: {mode: time}
model: {hidden: [8], embedding: 2}
training: {steps: 48, batch_size: 64, steps_per_call: 16, checkpoint_every_steps: 48, learning_rate: 0.02}
gate: {baseline: false, tolerance: {rmse: 10}}
schedule: {retrain: "0 5 2 * *", watch: "30 * * * *", predict: "0 6 * * *", monitor: "0 7 * * *", timezone: Europe/Berlin}
alarms: {notify: custom-webhook/ops, when: [failed, held, rejected, late]}
watch: {quiet_minutes: 0}
""",
    "queries": """
name: queries                      # documents in the order that a query wants them in
source: {format: jsonl, path: "data/{span}.jsonl"}
label: clicked
columns: {query: {role: group}, title: auto, match: standardize, length: standardize}
model: {hidden: [8], embedding: 2}
training: {steps: 32, batch_size: 64, steps_per_call: 16, checkpoint_every_steps: 32, ranking: {share: 0.5}}
gate: {baseline: false}
""",
}


def lay(root: Path) -> None:
    """Write the pipelines and their raw data."""
    for name, text in PIPELINES.items():
        (root / name / "data").mkdir(parents=True)
        (root / name / "pipeline.yaml").write_text(text.lstrip())
    for month in MONTHS:
        draw = np.random.default_rng(int(month.replace("-", "")))
        days = (np.datetime64(f"{month}-01") + draw.integers(0, 28, 400)).astype("datetime64[D]")
        pa_csv.write_csv(visits(draw, days), root / "visits" / "data" / f"{month}.csv")
        pq.write_table(sales(draw, days[:300]), root / "sales" / "data" / f"{month}.parquet")
        lines = [json.dumps(row) for row in queries(draw, month).to_pylist()]
        (root / "queries" / "data" / f"{month}.jsonl").write_text("\n".join(lines) + "\n")


def visits(draw: np.random.Generator, days: np.ndarray) -> pa.Table:
    patient, age = draw.integers(0, 120, 400), draw.normal(60, 15, 400).round(1)
    ward = draw.choice(["heart", "lung", "bone"], 400)
    logit = (age - 60) / 12 + (ward == "lung") + draw.normal(0, 0.7, 400)
    return pa.table(
        {
            "patient": [f"p{number:03}" for number in patient],
            "age": pa.array(age, mask=draw.random(400) < 0.05),
            "ward": ward,
            "admitted": days,
            "note": [f"bed {number}" for number in draw.integers(1, 90, 400)],
            "returned": np.where(logit > 0, "yes", "no"),
        }
    )


def sales(draw: np.random.Generator, days: np.ndarray) -> pa.Table:
    shop, area = draw.choice(["north", "south", "east"], 300), draw.uniform(50, 400, 300)
    opened = np.datetime64("2001-01-01") + draw.integers(0, 8000, 300)
    revenue = area / 20 + 5 * (shop == "north") + draw.normal(0, 2, 300)
    return pa.table(
        {
            "id": draw.integers(0, 1 << 40, 300),
            "day": days,
            "weight": draw.choice([0.5, 1.0, 2.0], 300),
            "shop": shop,
            "area": area.astype(np.float32),
            "opened": opened.astype("datetime64[D]"),
            "revenue": revenue.astype(np.float32),
        }
    )


def queries(draw: np.random.Generator, month: str) -> pa.Table:
    match = draw.normal(size=300).astype(np.float32)
    return pa.table(
        {
            "query": [f"{month}/{number // 6}" for number in range(300)],
            "title": draw.choice(["guide", "news", "shop"], 300),
            "match": match,
            "length": draw.integers(100, 3000, 300),
            "clicked": (match + draw.normal(0, 0.6, 300) > 0.6).astype(np.int64),
        }
    )


def headway(root: Path, *words: str, exits: int = 0, **environment: str) -> None:
    print("headway", *words, flush=True)
    command = [sys.executable, "-P", "-m", "flows.cli", *words]
    done = subprocess.run(command, cwd=root, env=os.environ | environment, check=False)
    assert done.returncode == exits, f"exit {done.returncode}"


def run(root: Path) -> None:
    """What a team did within three months."""
    weaker = ("--set", "training.steps=1", "--set", "training.learning_rate=0.0001")
    headway(root, "run", "visits", "--until", "2024-02")
    headway(root, "run", "visits", "--until", "2024-03")
    headway(root, "run", "visits", *weaker, "--until", "2024-03", exits=4)  # version 2 stays
    strict = ("--set", "gate.tolerance.auc=0.01")
    headway(root, "run", "visits", *weaker, *strict, "--until", "2024-03", exits=4)  # rejected
    headway(root, "promote", "visits", "--to", "1", "--alias", "stable", "--reason", "seen by the ward")
    headway(root, "rollback", "visits", "--reason", "a trial")
    headway(root, "promote", "visits", "--to", "2", "--force", "--reason", "the trial is over")
    for version in ("1", "2"):
        there = ("--input", "visits/data/2024-03.csv", "--output", f"visits/predicted-{version}")
        headway(root, "predict", "visits", "--model", version, *there)
    headway(root, "run", "sales", "--until", "2024-02")
    headway(root, "run", "sales", "--until", "2024-03")
    headway(root, "monitor", "sales")  # which ingests the last month
    headway(root, "rollback", "sales", "--reason", "the shops complained")
    headway(root, "run", "queries", "--until", "2024-03")


def handed_out(root: Path) -> dict[str, object]:
    """Deploy to a new Prefect server; what it hands out then."""
    home = root / "server"
    home.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = [sys.executable, "-P", str(Path(__file__).parents[3] / "infra" / "one_host.py")]
    subprocess.run([*server, "up", "--sqlite", "--port", str(port)], cwd=home, check=True)
    try:
        own = {"PREFECT_API_URL": f"http://127.0.0.1:{port}/api", "PREFECT_HOME": str(home / "client")}
        own["PREFECT_API_AUTH_STRING"] = (home / ".headway" / "prefect" / "auth").read_text().strip()
        os.environ.update(own)
        from prefect.blocks.notifications import CustomWebhookNotificationBlock
        from prefect.client.orchestration import get_client

        block = CustomWebhookNotificationBlock(name="ops", url="http://127.0.0.1:9", method="POST", json_data={})
        block.save("ops")
        headway(root, "deploy", *PIPELINES)
        with get_client(sync_client=True) as client:
            return {
                what: client._client.post(f"/{what}/filter", json={}).raise_for_status().json()
                for what in ("flows", "deployments", "automations", "work_pools")
            } | {"work_queues": client._client.post("/work_queues/filter", json={}).raise_for_status().json()}
    finally:
        subprocess.run([*server, "down"], cwd=home, check=True)


def pack(root: Path, to: Path) -> None:
    def kept(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(to, "w:xz", preset=9) as archive:
        for name in PIPELINES:
            archive.add(root / name, name, filter=kept)


def main() -> None:
    root, to = map(Path, sys.argv[1:])
    root.mkdir(parents=True)
    lay(root)
    run(root)
    deployed = handed_out(root)
    (to / "deployments_c0a2370c.json").write_text(json.dumps(deployed, indent=1, sort_keys=True) + "\n")
    pack(root, to / "store_c0a2370c.tar.xz")


if __name__ == "__main__":
    main()
