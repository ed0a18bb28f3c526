"""The runs of a store, read once each: what lists and charts need of a record, kept while they cannot change.

index = RunIndex(store)
index.runs()                  # newest first, a running one with its true state
index.problems()              # what lies in runs/ and is not a run's record
"""

import json
import threading
from pathlib import Path

from pydantic import ValidationError

from flows.records import RunRecord, all_settled, problem_of, read_record
from headway.storage.objects import each
from headway.storage.store import Store


class RunIndex:
    """The runs of one store. Used by several threads."""

    def __init__(self, store: Store):
        self.store = store
        self._ended: dict[str, RunRecord] = {}
        self._guard = threading.Lock()
        self._problems: list[tuple[str, str]] = []

    def runs(self) -> list[RunRecord]:
        """Every run, newest first: what lists show of its record."""
        with self._guard:
            files = [
                name
                for name in self.store.children(self.store.runs_folder)
                if name.endswith(".json") and not name.startswith(".")
            ]
            unread = [name for name in files if name not in self._ended]
            found, problems = {}, []
            read = each(self._read, unread) if "://" in self.store.name else map(self._read, unread)
            for name, record in zip(unread, read, strict=True):
                if isinstance(record, str):
                    problems.append((f"runs/{name}", record))
                else:
                    # config and columns would be tens of kilobytes for each run, and lists need none
                    less = {"config": None, "columns": (), "code": None, "training": None, "notes": ()}
                    found[name] = record.model_copy(update=less)
            # a record is not written again once its run has ended
            self._ended = {name: self._ended[name] for name in files if name in self._ended}
            self._ended |= {name: record for name, record in found.items() if not record.going_on}
            self._problems = problems
            known = self._ended | found
            return all_settled(self.store, [known[name] for name in reversed(files) if name in known])

    def known(self, run: object) -> RunRecord | None:
        """A run that has ended, as the last `runs` read it."""
        return self._ended.get(f"{run}.json")

    def problems(self) -> list[tuple[str, str]]:
        """(file, problem) of what `runs` passed over."""
        return list(self._problems)

    def record(self, run: str) -> RunRecord | None:
        """The whole record of a run, with its true state; None where there is none of this name, or it is damaged."""
        name = f"{run}.json"
        # a name is looked for among those that are there, and never made into a path
        if name not in self.store.children(self.store.runs_folder) or name.startswith("."):
            return None
        record = self._read(name)
        return None if isinstance(record, str) else all_settled(self.store, [record])[0]

    def _read(self, name: str) -> RunRecord | str:
        """A record, or what is wrong with it."""
        path = self.store.runs_folder / name
        if leads_out(self.store, path):
            return "is a link that leads out of the store"
        try:
            record = read_record(json.loads(self.store.read(path)))
        except ValidationError as error:
            return f"is not a run's record: {problem_of(error)}"
        except ValueError:
            return "is not JSON"
        except OSError as error:
            return f"cannot be read: {error.strerror or error}"
        return record if name == f"{record.run}.json" else f"is the record of run {record.run}, under another name"


def leads_out(store: Store, path: Path) -> bool:
    """Whether a file is a link to something outside of the store, or to nothing."""
    return path.is_symlink() and not (path.exists() and path.resolve().is_relative_to(store.root.resolve()))
