"""Starts trainings that need processes of their own: workers, and logical CPU devices; chooses the devices.

    result = train_apart(choice, request, out, monitor, remote=remote)

Workers on this machine are spawned here, and find each other on loopback by a TF_CONFIG made here. Where the environment
has a TF_CONFIG, each machine calls this for its own worker. The first worker is the chief: it alone writes checkpoints,
summaries and `out`.
"""

import contextlib
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from headway.config import Frozen
from headway.errors import ConfigError
from headway.monitor import Monitor
from headway.process_tuning import cores
from headway.storage.prefetch import RemoteFiles
from tfcore.data.source import Feed
from tfcore.distribute.placement import Choice, workers_of
from tfcore.distribute.process_group import run_together
from tfcore.train.request import TrainRequest
from tfcore.train.settings.config import TrainingConfig
from tfcore.train.steps.device_choice import Work, choose_device, work_of

TF_CONFIG = "TF_CONFIG"
NO_GPU = "-1"
_DEVICES = {"cpu": "the CPU", "gpu": "one GPU", "mirrored": "all GPUs"}
_REHEARSE = (
    "set training.strategy to auto, which takes the GPU; or hide it with CUDA_VISIBLE_DEVICES=-1, and training.replicas "
    "splits each batch over so many logical CPU devices"
)


class MemberRequest(Frozen):
    """The request to one process of a training."""

    request: TrainRequest
    remote: RemoteFiles | None = None
    worker: int = 0
    choice: Choice


def given_cluster() -> tuple[list[str], int] | None:
    """Return (the workers' addresses, this worker's index) if the environment has a TF_CONFIG, else None."""
    text = os.environ.get(TF_CONFIG)
    if not text:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"is not JSON: {error}", where=TF_CONFIG) from None
    return workers_of(value if isinstance(value, dict) else {})


def choose(
    config: TrainingConfig,
    *,
    gpus: int,
    cluster: int | None = None,
    work: Work | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> Choice:
    """Resolve the config's strategy for a machine with `gpus` GPUs.

    Args:
        cluster: workers that TF_CONFIG names, where it is set.
        work: what the training computes, if that is known: `auto` takes the device where it ends first.
        log: told what `auto` chose where there is a GPU, and why.

    Raises:
        ConfigError: it cannot be had, or a batch cannot be split so.
    """
    name = config.strategy
    if name == "auto":
        # one device where several cannot do it: nobody asked for them
        whole = config.ranking is not None or config.retrieval is not None
        splits = not whole and not config.eager and config.micro_batches == 1 and not config.batch_size % max(gpus, 1)
        name = "cpu"
        if gpus:
            name, why = choose_device(work, gpus=gpus, cores=config.threads or cores(), splits=splits)
            log(f"training.strategy: auto trains on {_DEVICES[name]}: {why}")
    if name == "gpu" and not gpus:
        raise ConfigError(
            "gpu, but TensorFlow sees no GPU on this machine",
            where="training.strategy",
            fix="set it to auto or cpu; 'headway doctor' tells which devices there are",
        )
    if name in ("mirrored", "multi_worker") and config.ranking is not None:
        raise ConfigError(
            f"{name} splits the rows of a batch over devices, which would cut groups, and the pairs of a group's rows that "
            "are on two devices would not be learned from",
            where="training.ranking",
            fix="train on one device (training.strategy: cpu or gpu), or leave ranking out",
        )
    if name in ("mirrored", "multi_worker") and config.retrieval is not None:
        raise ConfigError(
            f"{name} splits the rows of a batch over devices, and a row is compared with all items of its batch",
            where="training.retrieval",
            fix="train on one device (training.strategy: cpu or gpu), or leave retrieval out",
        )
    if name == "mirrored":
        return _mirrored(config, gpus)
    if name == "multi_worker":
        workers = cluster or config.workers
        if workers is None:
            raise ConfigError(
                "multi_worker, but neither training.workers nor a TF_CONFIG in the environment says how many",
                where="training.strategy",
                fix="set training.workers for workers on this machine, or give each machine its TF_CONFIG",
            )
        if config.workers not in (None, workers):
            raise ConfigError(
                f"{config.workers} workers, but TF_CONFIG names {workers}", where="training.workers", fix="leave it out"
            )
        _check_split(config, workers, "workers")
        return Choice("multi_worker", replicas=workers, workers=workers)
    return Choice(name)


def _mirrored(config: TrainingConfig, gpus: int) -> Choice:
    replicas = config.replicas or gpus
    if replicas < 2:
        raise ConfigError(
            f"mirrored needs at least two devices, and TensorFlow sees {gpus or 'no'} GPU{'s' if not gpus else ''}",
            where="training.strategy",
            fix=_REHEARSE
            if gpus
            else "set it to auto; or set training.replicas, to split each batch over so many logical CPU devices",
        )
    if 0 < gpus < replicas:
        raise ConfigError(
            f"{replicas} replicas, but TensorFlow sees {gpus} GPU{'s' if gpus > 1 else ''}",
            where="training.replicas",
            fix=_REHEARSE if gpus == 1 else f"at most {gpus}, or leave it out for all of them",
        )
    _check_split(config, replicas, "replicas")
    return Choice("mirrored", replicas=replicas, logical=not gpus)


def _check_split(config: TrainingConfig, parts: int, what: str) -> None:
    batch, micro = config.batch_size, config.micro_batches
    if batch % (parts * micro):
        each = parts * micro
        cut = f"{parts} {what}" + (f" with {micro} micro-batches each" if micro > 1 else "")
        raise ConfigError(
            f"a batch of {batch} cannot be split evenly over {cut}",
            where="training.batch_size",
            fix=" or ".join(str(size) for size in (batch - batch % each, batch - batch % each + each) if size),
        )


def chosen(
    request: TrainRequest, *, feed: Feed | None = None, log: Callable[[str], None] = lambda line: None
) -> Choice:
    """Resolve the request's strategy for this machine.

    Args:
        feed: where the rows come from in place of the request's examples; it lives in this process.
        log: see `choose`.
    """
    config = request.training
    cluster = given_cluster() if config.strategy == "multi_worker" else None
    gpus = len(tf.config.list_physical_devices("GPU"))
    work = work_of(config, request.model, request.transform, rows=_rows(request, feed)) if gpus else None
    choice = choose(config, gpus=gpus, cluster=len(cluster[0]) if cluster is not None else None, work=work, log=log)
    if choice.apart and feed is not None:
        raise ConfigError(
            f"{choice.name} trains in other processes, which the rows of a feed do not reach",
            where="training.strategy",
            fix="leave it out, or train on ingested examples",
        )
    return choice


def _rows(request: TrainRequest, feed: Feed | None) -> int:
    """The train rows."""
    if feed is not None:
        return feed.shards.total
    return sum(part.result["splits"].get(part.split, {}).get("rows", 0) for part in request.examples)


def train_apart(
    choice: Choice, request: TrainRequest, out: Path, monitor: Monitor, *, remote: RemoteFiles | None = None
) -> dict[str, Any]:
    """Train in child processes; same result as `tfcore.train.stage.train`.

    Raises:
        HeadwayError: a worker failed, died or is frozen; all have ended then.
    """
    cluster = given_cluster() if choice.name == "multi_worker" else None
    if cluster is not None:
        (_, first), here = cluster, 1
        environments: list[dict[str, str]] = [{}]
    else:
        first, here = 0, choice.workers
        environments = _environments(choice)
    parts = [
        MemberRequest(
            request=_with_threads(request, here), remote=remote, worker=first + number, choice=choice
        ).model_dump(mode="json")
        for number in range(here)
    ]
    return run_together(
        "tfcore.train.member:member",
        parts,
        out,
        monitor,
        environments,
        first=first,
        of=choice.workers,
        remedy=lambda: _remedy(request.checkpoints),
        timeout=request.training.worker_timeout,
    )


def _with_threads(request: TrainRequest, processes: int) -> TrainRequest:
    """Divide the machine's cores among the processes, if the config does not set the number of threads."""
    if request.training.threads is not None or processes == 1:
        return request
    training = request.training.model_copy(update={"threads": max(1, cores() // processes)})
    return request.model_copy(update={"training": training})


def _environments(choice: Choice) -> list[dict[str, str]]:
    """Return the environment of each process: its TF_CONFIG, and the GPUs that it may see."""
    if choice.name != "multi_worker":
        return [{"CUDA_VISIBLE_DEVICES": NO_GPU}]
    gpus = _visible_gpus()
    addresses = [f"127.0.0.1:{port}" for port in _free_ports(choice.workers)]
    return [
        {
            TF_CONFIG: json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": number}}),
            # one each, or none for any: workers that differ would wait for the slowest
            "CUDA_VISIBLE_DEVICES": gpus[number] if len(gpus) >= choice.workers else NO_GPU,
            # the workers are on this machine, and a proxy is not
            "no_proxy": "127.0.0.1",
            "GRPC_ENABLE_FORK_SUPPORT": "0",
        }
        for number in range(choice.workers)
    ]


def _visible_gpus() -> list[str]:
    """The GPUs of this process by the names that CUDA_VISIBLE_DEVICES takes."""
    count = len(tf.config.list_physical_devices("GPU"))
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return named[:count] if named else [str(number) for number in range(count)]


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def _remedy(checkpoints: Path | None) -> str:
    """Return the fix to suggest after a worker died."""
    there = checkpoints.iterdir() if checkpoints is not None and checkpoints.is_dir() else ()
    saved = [int(path.name) for path in there if path.name.isdigit()]
    if saved:
        return f"run again: the training goes on from its checkpoint of step {max(saved):,}"
    return "run again: it begins anew, since there is no checkpoint yet"
