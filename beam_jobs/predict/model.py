"""Finds the model of a prediction on a worker's machine. A worker that lacks the model downloads it from a bucket.

digest = model_digest(folder)
local_model(folder, "s3://team/store/models/flights/3/…/saved_model", digest)      # a folder with these bytes
"""

from __future__ import annotations

import threading
from pathlib import Path

from headway.errors import StoreError
from headway.process import Scratch
from headway.storage.bucket import Bucket
from headway.storage.fingerprint import fingerprint
from headway.storage.manifest import checksum
from headway.storage.objects import in_parallel

_FETCHING = threading.Lock()
_FETCHED: dict[str, Scratch] = {}
"""The temporary folder of each downloaded model, by the model's digest. The folder is deleted when this process ends."""


def model_digest(folder: Path) -> str:
    """Returns the digest of a SavedModel: of the paths and the bytes of all its files."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return fingerprint({path.relative_to(folder).as_posix(): checksum(path) for path in paths})


def fetch_model(url: str, folder: Path) -> None:
    """Download the files of a model in a bucket into a folder."""
    bucket = Bucket(url)
    in_parallel(lambda key: bucket.copy(key, folder / key), bucket.listing())


def local_model(folder: str, url: str | None, digest: str) -> str:
    """Returns a folder on this machine that holds the model. That is `folder` if it exists here or `url` is None. Else it is a
    temporary folder, into which this process downloads the model once.

    Args:
        url: the model's folder in a bucket; None: the model is only in `folder`, on a disk that workers and driver share.

    Raises:
        StoreError: the files in the bucket have another digest.
    """
    if url is None or Path(folder).is_dir():
        return folder
    with _FETCHING:
        if digest not in _FETCHED:
            scratch = Scratch("model")
            fetch_model(url, Path(scratch.name))
            if model_digest(Path(scratch.name)) != digest:
                raise StoreError("is not the model that was asked for", where=url, fix="run again")
            _FETCHED[digest] = scratch
    return _FETCHED[digest].name
