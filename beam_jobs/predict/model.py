"""The model of a prediction on a worker's machine; a worker without it downloads it from its bucket.

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
"""The folder of each model by its digest; the folder is removed with this process."""


def model_digest(folder: Path) -> str:
    """Returns the digest of all bytes of a SavedModel."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return fingerprint({path.relative_to(folder).as_posix(): checksum(path) for path in paths})


def fetch_model(url: str, folder: Path) -> None:
    """Download the files of a model in a bucket into a folder."""
    bucket = Bucket(url)
    in_parallel(lambda key: bucket.copy(key, folder / key), bucket.listing())


def local_model(folder: str, url: str | None, digest: str) -> str:
    """Returns the folder of a model on this machine: the driver's folder, or a temporary one, into which this process
    downloads the model once.

    Args:
        url: where its files are in a bucket; None: they are only on the driver's disk, which workers share.

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
