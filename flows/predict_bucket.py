"""The output of `headway predict` in a bucket: written on this disk, where ranges outlive a crash, then put.

    result = into_bucket("s3://team/scored", lambda folder: run(request, folder, monitor))

Readers wait for predictions.json, which is put last. What is being replaced loses it first, so that old and new parts
are never taken for one output. The folder on this disk may be deleted; then the next call predicts anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from beam_jobs.predict import MANIFEST
from headway.bucket import Bucket
from headway.bucket_store import default_cache
from headway.errors import StoreError
from headway.manifest import checksum
from headway.quarantine import FILE_NAME

_UNDER_WAY = ".predicting"
"""An object that says that a prediction is being put: one that was cut off is no reason to refuse the folder."""


def into_bucket(url: str, predict: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """What `predict` returns, after what it left in its folder is at `url`.

    Raises:
        StoreError: the bucket is away, or holds something there that no prediction wrote.
    """
    bucket = Bucket(url)
    bucket.check()
    there = bucket.listing()
    if there and MANIFEST not in there and _UNDER_WAY not in there:
        problem = "the folder is not empty, and no prediction wrote what is in it"
        raise StoreError(problem, where=bucket.url, fix="name a folder that is empty or does not exist")
    folder = default_cache(f"predict/{bucket.url.replace('://', '/')}")
    result = predict(folder)
    wanted = {part["file"]: (part["bytes"], part["crc32c"]) for part in result["parts"]}
    if (folder / FILE_NAME).is_file():
        wanted[FILE_NAME] = checksum(folder / FILE_NAME)
    manifest = (folder / MANIFEST).read_bytes()
    sizes = {name: found.bytes for name, found in there.items() if name != MANIFEST}
    if sizes == {name: size for name, (size, _) in wanted.items()} and bucket.read(MANIFEST) == manifest:
        return result
    bucket.write(_UNDER_WAY, json.dumps({"parts": len(wanted)}).encode())
    bucket.delete([MANIFEST])
    bucket.delete(name for name in there if name not in (*wanted, MANIFEST, _UNDER_WAY))
    bucket.put_all((name, folder / name, crc32c) for name, (_, crc32c) in wanted.items())
    bucket.write(MANIFEST, manifest)
    bucket.delete([_UNDER_WAY])
    return result
