"""Files on a local disk or in a bucket, each under one name: `/data/a.csv`, `s3://bucket/data/a.csv`, `gs://bucket/a.csv`.

    matches("s3://bucket/data/*/part-*.parquet")   # sorted names
    with open_file(name) as file:                  # seekable, read-only; any NativeFile
        file.read(10)

Files in buckets are read through pyarrow's filesystems, the store's objects through obstore. Both take their credentials from
the environment (AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS, STORAGE_EMULATOR_HOST, ...).
"""

from __future__ import annotations

import configparser
import contextlib
import datetime
import fnmatch
import functools
import glob
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from headway.errors import ConfigError, DataError
from headway.redaction import USERINFO
from headway.storage.manifest import blocks, crc32c

SCHEMES = ("s3", "gs")
_MAGIC = re.compile(r"[*?[]")
TRIES = 4
"""The number of times that pyarrow and obstore send a request before it fails (docs/storage.md: how long it takes)."""
_CONNECT_SECONDS = 10.0
_SILENT_SECONDS = 30.0
_GCS_RETRY_SECONDS = 15.0
_BACKOFF = datetime.timedelta(seconds=0.2)
"""The wait before the first retry of a request. Before each further retry, the wait is four times as long."""
_SAID = (
    r"<Code>(?P<code>.*?)</Code>.*?<Message>(?P<message>.*?)</Message>",
    r"AWS Error (?P<message>[^\n]*)",
    r"Status\((?P<message>.*?)( error_info=|\)$)",
    r"(message|error)\"?: ?\"(?P<message>[^\"]+)\"",
    r"kind: (?P<message>Timeout)",
)
"""Patterns that find the message of the server or the network in the text of a client's error."""
_REFUSALS = {
    r"Request_?Time_?Too_?Skewed": "set this machine's clock, which is too far from the bucket's",
    r"Invalid_?Access_?Key_?Id|Signature_?Does_?Not_?Match|Expired_?Token|Invalid_?Token|401 Unauth|UNAUTHENTICATED|"
    r"lacked valid auth": "check the credentials: {keys}",
    r"AuthorizationHeaderMalformed|PermanentRedirect|HTTP status 301|redirect without LOCATION": "set AWS_REGION to the "
    "region of the bucket",
    r"403 Forbidden|Access_?Denied|PERMISSION_DENIED|HTTP status 403": "give the user of these credentials {right} on "
    "the bucket, or use other credentials",
    r"status code: 4(?!08|29)|HTTP status 4(?!08|29)": "check the bucket's name and the credentials",
}
_RIGHTS = {
    "list request|ListObjects": ("s3:ListBucket", "storage.objects.list"),
    "performing (POST|DELETE)|Delete": ("s3:DeleteObject", "storage.objects.delete"),
    "performing PUT|Upload|Copy|Rewrite": ("s3:PutObject", "storage.objects.create"),
    "": ("s3:GetObject and s3:ListBucket", "storage.objects.get"),
}


def is_remote(name: str) -> bool:
    """Returns whether a file's name is an address in a bucket: whether it begins with s3:// or gs://."""
    return name.split("://", 1)[0] in SCHEMES if "://" in name else False


def has_magic(name: str) -> bool:
    """Returns whether `name` holds a wildcard of a glob: `*`, `?` or `[`."""
    return _MAGIC.search(name) is not None


def _s3_endpoint() -> str | None:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


@functools.lru_cache
def _filesystem(scheme: str) -> Any:
    if scheme == "s3":
        endpoint = _s3_endpoint()
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        options: dict[str, Any] = {"endpoint_override": endpoint} if endpoint else {}
        return pafs.S3FileSystem(
            **options,
            **({"region": region} if region else {}),
            retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=TRIES),
            connect_timeout=_CONNECT_SECONDS,
            request_timeout=_SILENT_SECONDS,
        )
    if scheme == "gs":
        limit = datetime.timedelta(seconds=_GCS_RETRY_SECONDS)
        emulator = os.environ.get("STORAGE_EMULATOR_HOST")
        if emulator:
            protocol, _, host = emulator.rpartition("://")
            return pafs.GcsFileSystem(
                anonymous=True, scheme=protocol or "http", endpoint_override=host, retry_time_limit=limit
            )
        return pafs.GcsFileSystem(retry_time_limit=limit)
    raise ConfigError(
        f"{scheme}:// is not a supported kind of storage", fix=f"known: a local path, {', '.join(SCHEMES)}"
    )


def client_of(url: str) -> Any:
    """Returns the obstore client for a folder in a bucket. For S3 it has the region, endpoint and timeouts of pyarrow's."""
    from obstore.store import GCSStore, S3Store

    filesystem, path = resolve(url)
    bucket, _, prefix = path.partition("/")
    options: dict[str, Any] = {
        "prefix": prefix or None,
        "client_options": {
            "allow_http": True,
            "connect_timeout": datetime.timedelta(seconds=_CONNECT_SECONDS),
            "read_timeout": datetime.timedelta(seconds=_SILENT_SECONDS),
            "timeout": datetime.timedelta(days=1),  # a large object takes its time
        },
        "retry_config": {
            "max_retries": TRIES - 1,
            "backoff": {"init_backoff": _BACKOFF, "max_backoff": 16 * _BACKOFF, "base": 4},
        },
    }
    config: Any = {}
    if url.startswith("s3://"):
        config = {"region": filesystem.region} | ({} if "AWS_ACCESS_KEY_ID" in os.environ else _profile())
        if endpoint := _s3_endpoint():
            config["endpoint"] = endpoint
        return S3Store(bucket, config=config, **options)
    if emulator := os.environ.get("STORAGE_EMULATOR_HOST"):
        config = {"base_url": emulator if "://" in emulator else f"http://{emulator}"}
        options["credential_provider"] = lambda: {"token": "", "expires_at": None}
    return GCSStore(bucket, config=config, **options)


def _profile() -> dict[str, str]:
    """Returns the access keys of AWS_PROFILE from ~/.aws/credentials, a file that obstore does not read; {} when none."""
    path = Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or Path.home() / ".aws" / "credentials")
    file = configparser.ConfigParser(interpolation=None)
    with contextlib.suppress(OSError, KeyError, configparser.Error):
        file.read(path)
        found = file[os.environ.get("AWS_PROFILE") or "default"]
        names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
        return {name: found[name] for name in names if name in found}
    return {}


def resolve(name: str) -> tuple[pafs.FileSystem, str]:
    """Returns the pyarrow filesystem to which a file's name belongs, and the path within that filesystem.

    Raises:
        ConfigError: the scheme is unknown, or the name holds a user or a password.
    """
    if "://" not in name:
        return pafs.LocalFileSystem(), name
    if USERINFO.match(name):
        raise ConfigError(
            "holds a user or a password, which Headway takes from the environment only",
            where=name,  # redacted, as every error is
            fix="leave out what stands before the @, and export AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
            "GOOGLE_APPLICATION_CREDENTIALS",
        )
    scheme, path = name.split("://", 1)
    return _filesystem(scheme), path


@contextlib.contextmanager
def reading(name: str) -> Iterator[None]:
    """Turn errors of the disk or the bucket in the block into DataErrors that name the file. Other errors pass unchanged."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        if not isinstance(error, OSError) and "google::cloud::Status" not in str(error):  # of what is in the file
            raise
        raise unreadable(name, error) from None


def unreadable(name: str, error: Exception) -> DataError:
    """Returns the DataError, with its fix, for a file or an object whose reading failed with `error`."""
    remote = is_remote(name)
    if isinstance(error, FileNotFoundError):
        fix = "check the path; a file that was there may have been moved or deleted"
        return DataError("there is no such file", where=name, fix=fix)
    if not remote and Path(name).is_dir():
        return DataError("is a folder, not a file", where=name, fix="name a file in it")
    if remote:
        problem, fix = refusal_or_fault(name, error)
        return DataError(f"cannot be read: {problem}", where=name, fix=fix)
    fix = "let this user read it" if isinstance(error, PermissionError) else "check the file and its disk"
    return DataError(f"cannot be read: {reason_of(error)}", where=name, fix=fix)


def refusal_or_fault(name: str, error: Exception) -> tuple[str, str]:
    """Returns the problem and the fix, as texts, for an error of a bucket's client: a refusal by the server, or a fault."""
    text = str(error)
    found = next(filter(None, (re.search(pattern, text, re.DOTALL) for pattern in _SAID)), None)
    said = ": ".join(filter(None, found.groupdict().values())) if found else text.partition("\n")[0]
    said = f"no answer for {_SILENT_SECONDS:g} s" if said == "Timeout" else said[:300]
    cloud = name.startswith("gs://")
    for pattern, fix in _REFUSALS.items():
        if re.search(pattern, text, re.IGNORECASE):
            rights = next(rights for asked, rights in _RIGHTS.items() if re.search(asked, text))
            keys = (
                "GOOGLE_APPLICATION_CREDENTIALS" if cloud else "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_PROFILE"
            )
            return f"the bucket refuses it: {said}", fix.format(right=rights[cloud], keys=keys)
    endpoint = os.environ.get("STORAGE_EMULATOR_HOST") or "Cloud Storage" if cloud else _s3_endpoint() or "Amazon S3"
    return said, f"check the bucket's name, the network, and that {endpoint} is up; then run again"


def reason_of(error: Exception) -> str:
    """Returns the operating system's reason for an error; if there is none, the message's first line, or the error's type."""
    return getattr(error, "strerror", None) or str(error).partition("\n")[0] or type(error).__name__


def open_file(name: str) -> pa.NativeFile:
    """Open a file on a disk or in a bucket for reading, with seek.

    Raises:
        DataError: the file cannot be opened.
    """
    filesystem, path = resolve(name)
    with reading(name):
        return filesystem.open_input_file(path)


def checksum(name: str) -> tuple[int, str]:
    """Returns a file's size in bytes and its crc32c as eight hex digits; DataError when it cannot be read."""
    with open_file(name) as file, reading(name):
        return crc32c(blocks(file))


def entries(
    folder: Path, *, refused: Callable[[OSError], None] = lambda error: None
) -> Iterator[tuple[Path, os.stat_result]]:
    """Yields the path and the lstat of each file and folder below a local folder. Paths removed meanwhile are left out.

    Args:
        refused: called with the error if a folder cannot be listed; that folder is skipped unless `refused` raises.
    """
    for where, folders, files in os.walk(folder, onerror=refused):
        folders.sort()
        for name in sorted([*folders, *files]):
            path = Path(where, name)
            try:
                about = path.lstat()
            except (FileNotFoundError, NotADirectoryError):
                continue
            yield path, about


def below(folder: str) -> list[str]:
    """Returns the names of all files in a folder and its subfolders, sorted; an empty list when there is no such folder.

    Raises:
        DataError: one of the folders cannot be listed.
    """

    def refused(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            fix = "let this user read it" if isinstance(error, PermissionError) else "check its disk"
            raise DataError(f"the folder cannot be listed: {error.strerror}", where=str(error.filename), fix=fix)

    if not is_remote(folder):
        return sorted(str(path) for path, _ in entries(Path(folder), refused=refused) if path.is_file())
    filesystem, path = resolve(folder.rstrip("/"))
    scheme = folder.split("://", 1)[0]
    with reading(folder):
        infos = filesystem.get_file_info(pafs.FileSelector(path, recursive=True, allow_not_found=True))
    return sorted(f"{scheme}://{info.path}" for info in infos if info.type == pafs.FileType.File)


def kind(name: str) -> str | None:
    """Returns whether `name` is a "file" or a "folder"; None when neither exists under this name."""
    if not is_remote(name):
        return "folder" if Path(name).is_dir() else "file" if Path(name).is_file() else None
    filesystem, path = resolve(name.rstrip("/"))
    with reading(name):
        info_type = filesystem.get_file_info(path).type
    return {pafs.FileType.File: "file", pafs.FileType.Directory: "folder"}.get(info_type)


def size_and_time(name: str) -> tuple[int, float]:
    """Returns a file's size in bytes and the time of its last change in seconds since 1970; (0, 0.0) when there is no
    such file."""
    filesystem, path = resolve(name)
    with reading(name):
        info = filesystem.get_file_info(path)
    return info.size or 0, (info.mtime_ns or 0) / 1e9


def matches(pattern: str) -> list[str]:
    """Returns the files and folders that match a glob, sorted; `*`, `?` and `[...]` match within one part of a path."""
    if not has_magic(pattern):
        return [pattern] if kind(pattern) else []
    if not is_remote(pattern):
        return sorted(glob.glob(pattern))
    scheme, path = pattern.split("://", 1)
    parts = path.rstrip("/").split("/")
    first = next(i for i, part in enumerate(parts) if has_magic(part))
    if scheme == "gs":  # whose folders pyarrow lists only if they have an object of their own, which nobody makes
        names = {tuple(name.split("/")[2 : 2 + len(parts)]) for name in below(f"{scheme}://{'/'.join(parts[:first])}")}
        whole = [name for name in names if len(name) == len(parts) and all(map(fnmatch.fnmatchcase, name, parts))]
        return sorted(f"{scheme}://{'/'.join(name)}" for name in whole)
    paths = ["/".join(parts[:first])]
    filesystem, _ = resolve(pattern)
    for place in range(first, len(parts)):
        glob_part, last = parts[place], place == len(parts) - 1
        if not has_magic(glob_part):
            paths = [f"{base}/{glob_part}" for base in paths]
            if last:
                paths = [name for name in paths if kind(f"{scheme}://{name}")]
            continue
        deeper = []
        for base in paths:
            with reading(f"{scheme}://{base}"):
                infos = filesystem.get_file_info(pafs.FileSelector(base, allow_not_found=True))
            for info in infos:
                if fnmatch.fnmatchcase(info.base_name, glob_part) and (last or info.type == pafs.FileType.Directory):
                    deeper.append(info.path)
        paths = deeper
    return sorted(f"{scheme}://{name}" for name in paths)
