"""The Prefect server of PREFECT_API_URL: a connection with errors that a person can act on, queues, and runs to start.

with connected() as (client, url):
    client.read_work_pool("headway")
start_run("retrain/flights", "a key", {"until": "2013-12"})
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.settings import get_current_settings

from flows.orchestration.requested_stops import ask_once
from headway.errors import ConfigError, HeadwayError

POOL = "headway"
PIPELINES_VARIABLE = "HEADWAY_PIPELINES"
"""The folder that holds the pipelines' folders on a worker, where it is another than where they were deployed from."""


@contextlib.contextmanager
def connected() -> Iterator[tuple[SyncPrefectClient, str]]:
    """Yield a client of the server and the server's address; Prefect's log warns of a server whose Prefect is older.

    Raises:
        ConfigError: no server is named, it does not answer, it wants a password, or it has another major version of Prefect.
        HeadwayError: the server refused what was asked of it.
    """
    url = get_current_settings().api.url
    if not url:
        raise ConfigError(
            "no Prefect server is named",
            where="PREFECT_API_URL",
            fix="start one ('make up' in Headway's folder, or prefect server start), then "
            "export PREFECT_API_URL=http://127.0.0.1:4200/api",
        )
    try:
        answer = health(url)  # Prefect's client waits minutes for a server that is away
        if answer.status_code >= 500:  # of a proxy before one
            answer.raise_for_status()
    except httpx.HTTPError as error:
        fix = "start the server, or correct the address; it ends in /api"
        problem = f"the Prefect server does not answer: {(str(error) or type(error).__name__).splitlines()[0]}"
        raise ConfigError(problem, where=url, fix=fix) from None
    kind = answer.headers.get("content-type", "")
    if answer.status_code >= 300 or "json" not in kind:  # as a proxy's page to sign in
        problem = f"this is not the API of a Prefect server: {url}/health answers {answer.status_code} {kind}".rstrip()
        raise ConfigError(problem, where="PREFECT_API_URL", fix="it ends in /api: http://127.0.0.1:4200/api")
    with get_client(sync_client=True) as client:
        try:
            client.request("GET", "/admin/version")  # refused without the password
            try:
                client.raise_for_api_version_mismatch()
            except RuntimeError as error:
                raise ConfigError(str(error), where=url, fix="update the older of the two") from None
            yield client, url
        except httpx.HTTPStatusError as error:
            if error.response.status_code in (401, 403):
                problem = "the Prefect server asks for a password, and the one that was sent is not it"
                fix = "export PREFECT_API_AUTH_STRING=user:password; after 'make up': \"$(cat .headway/prefect/auth)\""
                raise ConfigError(problem, where=url, fix=fix) from None
            said = ": ".join(str(error).splitlines()[:2])
            raise HeadwayError(f"the Prefect server refused this: {said}", where=url) from None


def health(url: str) -> httpx.Response:
    """Ask once whether a server is up, as Prefect's own client reaches it.

    Args:
        url: the API's.

    Raises:
        httpx.HTTPError: it does not answer.
        ConfigError: the certificates cannot be read.
    """
    try:
        return ask_once(SyncPrefectClient(url), "/health")
    except OSError as error:
        problem = (
            f"the certificates in {get_current_settings().api.ssl_cert_file} cannot be read: {error.strerror or error}"
        )
        fix = "name a PEM file that exists, or unset it"
        raise ConfigError(problem, where="PREFECT_API_SSL_CERT_FILE", fix=fix) from None


def create_queues(client: SyncPrefectClient, pool: str, names: Sequence[str]) -> list[str]:
    """Make the work queues that a pool lacks; returns those."""
    there = {queue.name for queue in client.read_work_queues(pool)}
    missing = [name for name in names if name not in there]
    for name in missing:
        client.create_work_queue(name, work_pool_name=pool)
    return missing


def start_run(deployment: str, key: str, parameters: Mapping[str, Any], **options: Any) -> FlowRun:
    """Start a run of a deployment; with the same key it is the same run.

    Args:
        deployment: "flow/deployment".
        options: of Prefect's `create_flow_run_from_deployment`.

    Raises:
        ConfigError: there is no such deployment, or it does not take a parameter.
    """
    with get_client(sync_client=True) as client:
        try:
            id = client.read_deployment_by_name(deployment).id
            return client.create_flow_run_from_deployment(
                id, parameters=dict(parameters), idempotency_key=key, **options
            )
        except ObjectNotFound:
            problem = f"there is no deployment {deployment}"
            raise ConfigError(problem, where="Prefect server", fix="headway deploy makes it") from None
        except PrefectHTTPStatusError as error:
            if error.response.status_code not in (409, 422):
                raise
            problem = f"the deployment {deployment} does not take {', '.join(parameters)}"
            raise ConfigError(problem, where="Prefect server", fix="headway deploy renews it") from None


def polled(pool: str, queue: str) -> bool | None:
    """Tells whether a worker polls a queue; None where the server does not answer."""
    with contextlib.suppress(Exception), get_client(sync_client=True) as client:
        return client.read_work_queue_by_name(queue, pool).status == "READY"
    return None


def worker_command(pool: str, queue: str) -> str:
    """Returns the command that starts Headway's worker of a queue."""
    return f"python -P -m flows.orchestration.worker --pool {pool} --queue {queue}"
