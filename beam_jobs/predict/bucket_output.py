"""The output of `headway predict` in a bucket: written to this disk first, where ranges survive a crash, then uploaded.

    result = into_bucket("s3://team/scored", lambda folder: run(request, folder, monitor))

Readers wait for predictions.json, which is put last. What is being replaced loses it first, so that old and new parts
are never taken for one output. The folder on this disk may be deleted; then the next call predicts anew. A lock with a
lease, an object in the folder, keeps two predictions into one folder apart, on one machine or on several.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from beam_jobs.predict.stage import MANIFEST
from headway.errors import Locked, StoreError
from headway.storage.bucket import Bucket
from headway.storage.locks import LEASE_SECONDS, Lock
from headway.storage.manifest import checksum
from headway.storage.objects import Found
from headway.storage.store import default_cache
from headway.tabular.quarantine import FILE_NAME

_UNDER_WAY = ".predicting"
"""An object that says that a prediction is being put: one that was cut off is no reason to refuse the folder."""
_LOCK = "locks/predict.json"


def into_bucket(
    url: str, predict: Callable[[Path], dict[str, Any]], *, lease_seconds: float = LEASE_SECONDS
) -> dict[str, Any]:
    """Call `predict` with a local folder, upload the files it wrote to `url`, and return its result.

    Raises:
        StoreError: the bucket is away, or holds something there that no prediction wrote.
        Locked: another prediction into that folder is going on, on this machine or another.
    """
    bucket = Bucket(url)
    bucket.check()
    _files_of(bucket)  # before anything is put into a folder that is not ours
    lock = Lock(bucket, _LOCK, lease_seconds=lease_seconds)
    try:
        with lock.held():
            return _predicted(bucket, predict, lock)
    except Locked as error:
        if error.where != lock.path:  # of another lock
            raise
        problem = f"another prediction into this folder is going on: the folder {error.problem}"
        raise Locked(problem, where=bucket.url, fix="wait for it to end, or name another folder") from None


def _files_of(bucket: Bucket) -> dict[str, Found]:
    """Return the files in the bucket's folder; StoreError if they were not written by a prediction."""
    files = {name: file for name, file in bucket.listing().items() if not name.startswith(_LOCK)}
    if files and MANIFEST not in files and _UNDER_WAY not in files:
        problem = "the folder is not empty, and no prediction wrote what is in it"
        raise StoreError(problem, where=bucket.url, fix="name a folder that is empty or does not exist")
    return files


def _predicted(bucket: Bucket, predict: Callable[[Path], dict[str, Any]], lock: Lock) -> dict[str, Any]:
    files = _files_of(bucket)
    folder = default_cache(f"predict/{bucket.url.replace('://', '/')}")
    result = predict(folder)
    lock.check()
    expected = {part["file"]: (part["bytes"], part["crc32c"]) for part in result["parts"]}
    if (folder / FILE_NAME).is_file():
        expected[FILE_NAME] = checksum(folder / FILE_NAME)
    manifest = (folder / MANIFEST).read_bytes()
    sizes = {name: file.bytes for name, file in files.items() if name != MANIFEST}
    if sizes == {name: size for name, (size, _) in expected.items()} and bucket.read(MANIFEST) == manifest:
        return result
    bucket.write(_UNDER_WAY, json.dumps({"parts": len(expected)}).encode())
    bucket.delete([MANIFEST])
    bucket.delete(name for name in files if name not in (*expected, MANIFEST, _UNDER_WAY))
    bucket.put_all((name, folder / name, crc32c) for name, (_, crc32c) in expected.items())
    lock.check()
    bucket.write(MANIFEST, manifest)
    bucket.delete([_UNDER_WAY])
    return result
