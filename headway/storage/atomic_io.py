"""Atomic writes, so that a file is always complete even when the disk is full, read-only or removed.

storage_error(error)                      # the StoreError, with path and fix, for a full or forbidden disk
with writing(root):                       # the OSError of a full disk becomes a StoreError that says what to do
    replace_text(root / "runs" / "1.json", "{}\\n")     # old text or new, never a part
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from headway.errors import StoreError
from headway.storage.process_identity import temporary_name

_ROOM = "make room (headway clean lists what no run needs, and --yes deletes it), or name another store"
FIXES = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EROFS: "name a store on a disk that can be written",
    errno.EACCES: "give this user the right to write there, or name another store",
    errno.EPERM: "give this user the right to write there, or name another store",
    errno.EIO: "check the disk: it failed to read or write",
    errno.ENOTDIR: "name a folder: a part of this path is a file",
    errno.ENAMETOOLONG: "name a shorter path",
    errno.EMFILE: "raise the limit of open files: ulimit -n",
    errno.EFBIG: "raise `ulimit -f`, or name a store on a disk that takes larger files",
}
"""The fix for each error number (errno) with which a disk refuses to be read or written."""
_FOREIGN = ("tensorflow", "pyarrow", "keras", "h5py")
_RIGHTS = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextlib.contextmanager
def writing(root: Path) -> Iterator[None]:
    """Turn the OSErrors in the block that `FIXES` has, such as for a full disk, into StoreErrors with path and fix.

    Other errors pass unchanged. A missing permission outside of `root` passes too, since that file is not the store's.
    """
    try:
        yield
    except OSError as error:
        # a failed write names no file
        inside = Path(_written(error) or root).resolve().is_relative_to(root.resolve())
        refusal = storage_error(error, root)
        if refusal is None or (error.errno in _RIGHTS and not inside):
            raise
        raise refusal from None


def storage_error(error: BaseException, root: Path | None = None) -> StoreError | None:
    """Returns the StoreError, with path and fix, for a disk that is full, read-only or forbidden; None for other
    errors.

    Exceptions of TensorFlow and Arrow have no errno: they are recognized by the system's words in their message.

    Args:
        root: the path to name when the error names no file, as after a failed write; None: the working directory.
    """
    number = error.errno if isinstance(error, OSError) and error.errno is not None else None
    if number not in FIXES:
        words = str(error)
        number = next((code for code in FIXES if os.strerror(code) in words), None)
        if number is None or (
            type(error).__module__.partition(".")[0] not in _FOREIGN and not isinstance(error, OSError)
        ):
            return None
    name = _written(error) if isinstance(error, OSError) else None
    named = re.match(r"(?:\{\{.*?\}\} ?)?(/[^;\n]*?); ", str(error))
    where = name or (named[1] if named else str(root or Path.cwd()))
    reason = os.strerror(number).lower()
    fix = FIXES[number]
    if root is None and number in _RIGHTS[:2]:  # it may have been read
        fix = f"let this user read it, and where it is written {fix}"
    return StoreError(f"cannot be written: {reason}" if root else reason, where=where, fix=fix)


def _written(error: OSError) -> str | None:
    """Returns the file that a system call failed on (for a copy, the new file); None when the error names none."""
    name = error.filename2 or error.filename
    return os.fsdecode(name) if isinstance(name, str | bytes) else None


def write_synced(path: Path, text: str) -> None:
    """Write `text` to a file, and return when it is on the disk."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync_path(path: Path) -> None:
    """Fsync a file or a folder. Syncing a folder makes new and renamed files in it survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_text(path: Path, text: str) -> None:
    """Write a file so that a reader, also after a power cut, sees the old text or the new, never a part."""
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(temporary_name(f".{path.name}"))  # `Store.sweep` knows its name
        try:
            write_synced(temporary, text)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_path(path.parent)


def copy_tree(source: Path, target: Path, *, link: bool = False) -> None:
    """Copy a folder's files and folders; `target` may exist. With `link`, files are hard-linked if the disk can do that.

    shutil.copytree is not used, since it merges the errors of a full disk into one without an errno.
    """
    target.mkdir(exist_ok=True)
    for path in sorted(source.iterdir()):
        if path.is_dir():
            copy_tree(path, target / path.name, link=link)
        else:
            (link_or_copy if link else shutil.copyfile)(path, target / path.name)


def link_or_copy(source: Path, target: Path) -> None:
    """Hard-link the file `source` as `target`. If that fails (another disk, no hard links, `target` exists), copy it there."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def remove(path: Path) -> None:
    """Remove a file or a folder. Errors are ignored: the next `Store.sweep` removes what is left."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
