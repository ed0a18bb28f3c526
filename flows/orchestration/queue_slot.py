"""A place in a work queue's concurrency limit: one training for each GPU, whichever pipeline or worker it is of.

    with queue_slot("gpu", report):              # waits for a slot of the limit headway-gpu, and says so
        train()

The limit is a global concurrency limit of the server (`headway deploy --gpus 2`); without one nothing waits. A slot is
leased for a minute and renewed while its holder lives: one that was killed gives it back within 75 s, as Prefect looks every
15 s. The same holds for a slot whose grant did not arrive: no API tells its lease. A holder whose lease is lost, since the
server was away for longer than that, goes on.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from functools import partial
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import ConcurrencyLeaseHolder
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
from prefect.concurrency.sync import concurrency
from prefect.exceptions import ObjectNotFound
from prefect.runtime import flow_run
from prefect.states import Running, State

from flows.orchestration.requested_stops import outlive
from flows.orchestration.run_log import RunLog
from headway.messages import counted, duration

LEASE_SECONDS = 60.0
"""The shortest that Prefect's server takes."""
TRY_SECONDS = 5.0


def limit_name(queue: str) -> str:
    """The global concurrency limit of a work queue."""
    return f"headway-{queue}"


@contextlib.contextmanager
def queue_slot(queue: str, report: RunLog) -> Iterator[None]:
    """Hold one slot of the queue's limit, if there is such a limit.

    Raises:
        Cancelled: the run was stopped while it waited.
        HeadwayError: the server was away for ten minutes.
    """
    name = limit_name(queue)
    slots = outlive(lambda: _slots(name), report.stop)
    if not slots:
        yield
        return
    holder, began = ConcurrencyLeaseHolder(type="flow_run", id=UUID(flow_run.id)), time.monotonic()
    waited = False
    with contextlib.ExitStack() as held:
        while True:
            try:
                # a run that is stopped does not wait on
                outlive(partial(_take, name, TRY_SECONDS if waited else 1.0, holder, held), report.stop)
                break
            except TimeoutError:
                if not waited:
                    waited = True
                    sentence = f"waiting for a slot of {name}: {counted(slots, 'slot')}, all taken"
                    report.note(sentence)
                    _show(Running(name="WaitingForSlot", message=sentence))
                report.check()
        if waited:
            report.note(f"got a slot of {name} after {duration(time.monotonic() - began)}")
            _show(Running())
        yield


def _take(name: str, seconds: float, holder: ConcurrencyLeaseHolder, held: contextlib.ExitStack) -> None:
    """Take a slot, which is given back when `held` ends.

    Raises:
        TimeoutError: none was free for so many seconds.
        httpx.HTTPError: the server does not answer.
    """
    slot = concurrency(
        name,
        timeout_seconds=seconds,
        lease_duration=LEASE_SECONDS,
        strict=False,
        holder=holder,
        raise_on_lease_renewal_failure=False,
    )
    try:
        held.enter_context(slot)
    except ConcurrencySlotAcquisitionError as error:
        raise error.__cause__ or error from None


def _slots(name: str) -> int:
    """How many slots an active limit has; 0: there is none."""
    with get_client(sync_client=True) as client:
        try:
            limit = client.read_global_concurrency_limit_by_name(name)
        except ObjectNotFound:
            return 0
    return limit.limit if limit.active else 0


def _show(state: State[None]) -> None:
    """Put a state of this flow run on the server; one that is being cancelled stays so."""
    with contextlib.suppress(Exception), get_client(sync_client=True) as client:
        now = client.read_flow_run(UUID(flow_run.id)).state
        if now is not None and now.is_running():
            client.set_flow_run_state(UUID(flow_run.id), state)
