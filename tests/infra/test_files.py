"""What infra/ hands to Docker, Kubernetes and systemd: read by a checker of each, and true to the code that it names."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.prefect_server import infra

INFRA = Path(__file__).parents[2] / "infra"
MANIFESTS = sorted(path for path in (INFRA / "kubernetes").glob("*.yaml") if path.name != "kustomization.yaml")
UNITS = sorted((INFRA / "systemd").glob("*.service"))
WORKERS = [path for path in UNITS if "flows.orchestration.worker" in path.read_text()]
VARIABLES = {"HEADWAY_DATA": "/srv/headway", "HEADWAY_AUTH": "user:password", "POSTGRES_PASSWORD": "secret"}


def _passes(*command):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _tool(name):
    return Path(sys.executable).with_name(name)


@pytest.mark.parametrize("path", sorted((INFRA / "images").iterdir()), ids=lambda path: path.name)
def test_images_pass_hadolint(path):
    _passes(_tool("hadolint"), "--failure-threshold", "warning", path)


def test_the_compose_file_follows_the_compose_specification():
    _passes(_tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", INFRA / "compose" / "compose.yaml")


def test_docker_compose_itself_reads_the_compose_file(monkeypatch):
    if subprocess.run(["sh", "-c", "docker compose version"], capture_output=True, check=False).returncode:
        pytest.skip("there is no docker compose here")
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    profiles = [f"--profile={name}" for name in ("gpu", "serving", "flink")]
    _passes("docker", "compose", "-f", INFRA / "compose" / "compose.yaml", *profiles, "config", "--quiet")


def test_every_variable_of_the_compose_file_stands_in_the_example():
    used = set(re.findall(r"\$\{(\w+)", (INFRA / "compose" / "compose.yaml").read_text()))
    assert used == set(re.findall(r"^(\w+)=", (INFRA / "compose" / ".env.example").read_text(), re.MULTILINE))


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_follow_the_schema_of_kubernetes(path):
    _passes(_tool("kubernetes-validate"), "--strict", path)


def test_kustomize_names_every_manifest():
    resources = yaml.safe_load((INFRA / "kubernetes" / "kustomization.yaml").read_text())["resources"]
    assert sorted(resources) == [path.name for path in MANIFESTS]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_pass_systemd(path, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    # the interpreter that a machine with Headway has; here it is this one
    unit = tmp_path / path.name
    unit.write_text(path.read_text().replace("/opt/headway/bin/python", sys.executable))
    _passes("systemd-analyze", "verify", "--recursive-errors=no", unit)


@pytest.mark.parametrize("path", [p for p in sorted(INFRA.rglob("*")) if p.is_file() and p.suffix != ".pyc"], ids=str)
def test_modules_that_are_named_exist(path):
    # Dockerfiles, compose, manifests and units start Headway by `python -m module`
    text = re.sub(r"[\[\],\"]", " ", path.read_text())
    for module in re.findall(r"-m\s+((?:flows|beam_jobs|tfcore)[\w.]+)", text):
        assert importlib.util.find_spec(module.rstrip(".")), module


def test_supervisors_wait_longer_than_a_worker_waits_for_its_runs():
    from flows.orchestration.worker import GRACE_SECONDS

    compose = yaml.safe_load((INFRA / "compose" / "compose.yaml").read_text())
    assert int(compose["x-worker"]["stop_grace_period"].removesuffix("s")) > GRACE_SECONDS
    for name in ("worker", "worker-gpu"):
        pod = yaml.safe_load((INFRA / "kubernetes" / f"{name}.yaml").read_text())["spec"]["template"]["spec"]
        assert pod["terminationGracePeriodSeconds"] > GRACE_SECONDS
    for path in WORKERS:
        assert int(re.search(r"^TimeoutStopSec=(\d+)$", path.read_text(), re.MULTILINE)[1]) > GRACE_SECONDS


def test_images_have_the_version_of_the_package():
    version = tomllib.loads((INFRA.parent / "pyproject.toml").read_text())["project"]["version"]
    texts = [path.read_text() for path in (INFRA / "compose" / "compose.yaml", INFRA / "images" / "headway.Dockerfile")]
    tags = [tag for text in texts for tag in re.findall(r"headway:([\w.-]+)", text)]
    kustomization = yaml.safe_load((INFRA / "kubernetes" / "kustomization.yaml").read_text())
    tags += [image["newTag"] for image in kustomization["images"]]
    assert set(tags) == {f"{version}-cpu", f"{version}-gpu"}


def test_the_passwords_of_database_and_server_are_the_servers_alone():
    for path in UNITS:
        (file,) = re.findall(r"^EnvironmentFile=/etc/headway/(.+)$", path.read_text(), re.MULTILINE)
        text = (INFRA / "systemd" / f"{file}.example").read_text()
        assert ("PREFECT_SERVER_" in text) == (path.stem == "headway-server"), path.name
    services = yaml.safe_load((INFRA / "compose" / "compose.yaml").read_text())["services"]
    holders = {name for name, each in services.items() if "POSTGRES_PASSWORD" in json.dumps(each.get("environment"))}
    assert holders == {"postgres", "server"}


def test_a_password_of_any_characters_reaches_the_database():
    services = yaml.safe_load((INFRA / "compose" / "compose.yaml").read_text())["services"]
    unit = dict(re.findall(r"^(\w+)=(.*)$", (INFRA / "systemd" / "server.env.example").read_text(), re.MULTILINE))
    code = "from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL as url; from sqlalchemy import make_url; "
    code += "value = url.value(); print(make_url(getattr(value, 'get_secret_value', lambda: value)()).password)"
    for settings in (services["server"]["environment"], unit):
        env = {name: value for name, value in settings.items() if name.startswith("PREFECT_SERVER_DATABASE")}
        env |= {"PREFECT_SERVER_DATABASE_PASSWORD": "p@/:%#w d", "PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
        assert done.stdout == "p@/:%#w d\n", done.stderr


def test_what_a_group_may_read_is_the_same_however_workers_are_started():
    for path in UNITS:
        mask = int(re.search(r"^UMask=(\d+)$", path.read_text(), re.MULTILINE)[1], 8)
        assert mask == (infra("one_host")._WORKER_UMASK if path in WORKERS else 0o077), path.name


def test_every_process_is_asked_whether_it_hangs():
    services = yaml.safe_load((INFRA / "compose" / "compose.yaml").read_text())["services"]
    for name, service in services.items():
        if "flows" in str(service.get("command")):
            assert "/health" in " ".join(service["healthcheck"]["test"]) and "mem_limit" in service, name
            assert "--with-healthcheck" in service["command"], name
    for path in MANIFESTS:
        manifest = yaml.safe_load(path.read_text())
        if manifest["kind"] == "Deployment":
            (container,) = manifest["spec"]["template"]["spec"]["containers"]
            assert "command" not in container, "it would take the place of the image's PID 1"
            assert "/health" in json.dumps(container["livenessProbe"]), path.name
            assert "--with-healthcheck" in container["args"], path.name


def test_every_worker_survives_a_run_that_is_killed_for_its_memory():
    for path in WORKERS:
        assert "OOMPolicy=continue" in path.read_text().splitlines(), path.name
