"""The model of a prediction on the machine of a worker, which gets it from its bucket if need be.

digest = model_digest(folder)
local_model(folder, "s3://team/store/models/flights/3/…/saved_model", digest)      # a folder with these bytes
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from headway.errors import StoreError
from headway.storage.atomic_io import remove
from headway.storage.bucket import Bucket
from headway.storage.fingerprint import fingerprint
from headway.storage.manifest import checksum
from headway.storage.objects import each
from headway.storage.process_identity import mark
from headway.storage.store import default_cache

_FETCHING = threading.Lock()
_UNUSED_SECONDS = 24 * 3600.0
"""A model in the cache that no range was given to for so long is removed when another is fetched."""


def model_digest(folder: Path) -> str:
    """Digest of every byte of a SavedModel."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return fingerprint({path.relative_to(folder).as_posix(): checksum(path) for path in paths})


def fetch_model(url: str, folder: Path) -> None:
    """Download the files of a model."""
    bucket = Bucket(url)
    each(lambda key: bucket.copy(key, folder / key), bucket.listing())


def local_model(folder: str, url: str | None, digest: str) -> str:
    """The folder of a model on this machine: that of the driver, or one in the cache, fetched once.

    Args:
        url: where its files are in a bucket; None: on the driver's disk only, which workers share.

    Raises:
        StoreError: the bucket does not have these bytes.
    """
    if url is None or Path(folder).is_dir():
        return folder
    target = default_cache(f"predict-models/{digest}")
    with _FETCHING:
        if not target.is_dir():
            aside = target.with_name(mark(f".{digest}"))
            try:
                fetch_model(url, aside)
                if not aside.is_dir() or model_digest(aside) != digest:
                    raise StoreError("is not the model that was asked for", where=url, fix="run again")
                aside.rename(target)
                _trim(target.parent)
            except OSError:
                if not target.is_dir():  # else another process was first
                    raise
            finally:
                remove(aside)
        os.utime(target)
    return str(target)


def _trim(cache: Path) -> None:
    """Remove what was not used for a while; a process that has loaded a model needs its files no more."""
    for path in cache.iterdir():
        if time.time() - path.stat().st_mtime > _UNUSED_SECONDS:
            remove(path)
