"""The journal of an Optuna study: one file, written by one process at a time; TensorFlow-free.

    study = optuna.create_study(storage=storage_of(Path("store/studies/flights/tune.journal")), load_if_exists=True)

The pipeline's run lock keeps other runs out, and of the two processes of a run one waits while the other writes, so the
journal needs no lock of its own, which a killed process would leave behind.
"""

import contextlib
from pathlib import Path
from typing import Any


def storage_of(journal: Path) -> Any:
    """The Optuna storage of a journal file; a line that a killed process left unfinished is cut off."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    journal.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        written = journal.read_bytes()
        whole = written.rfind(b"\n") + 1
        if whole < len(written):
            journal.write_bytes(written[:whole])
    no_lock: Any = _NoLock()
    return JournalStorage(JournalFileBackend(str(journal), lock_obj=no_lock))


class _NoLock:
    def acquire(self) -> bool:
        return True

    def release(self) -> None: ...
