"""The stores that the dashboard shows, by the name that they have in its addresses; what watchers know of a pipeline.

stores = opened(["examples/flights"], ["s3://team/headway"])
stores["flights"].store, stores["flights"].pipelines
"""

import functools
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from flows.config.pipeline import LoadedPipeline, read_pipeline
from flows.dashboard.run_index import RunIndex, leads_out
from flows.production.state_files import CheckedSpan, MonitorState, WatchState
from flows.records import RunRecord, log_path, problem_of, read_log
from flows.tell.paired import Paired, judged, run_texts
from headway.errors import StoreError
from headway.registry.registry import Registry, Version
from headway.registry.registry import names as registry_names
from headway.storage.store import Store, open_store

_PARTS = ("stages", "runs", "models", "serving", "checkpoints", "locks")


@functools.lru_cache(maxsize=4096)
def version_of(store: Store, model: str, number: int) -> Version:
    """A version, read once: it does not change."""
    return Registry(store, model).version(number)


@functools.lru_cache(maxsize=4096)
def pair_of(store: Store, model: str, number: int) -> Paired | None:
    """A version against the champion of its time, by the metric that decided."""
    return judged(store, version_of(store, model, number), whole=False)


def checked_spans(store: Store, pipeline: str) -> tuple[list[CheckedSpan], str | None]:
    """(everything that monitor found of a pipeline's champions, why it cannot be shown)"""
    try:
        return MonitorState.load(store, pipeline).checked, None
    except (OSError, ValueError) as error:
        return [], _problem(f"monitor/{pipeline}.json", "monitor", error)


def waiting_spans(store: Store, pipeline: str) -> list[str]:
    """Sentences on what `headway watch` waits for or has started."""
    try:
        state = WatchState.load(store, pipeline)
    except (OSError, ValueError) as error:
        return [_problem(f"watch/{pipeline}.json", "watch", error)]
    said = [f"headway watch has handled everything up to {state.handled}."] if state.handled else []
    if state.pending is not None:
        said.append(f"It has started a retrain up to {state.pending.until}, attempt {state.pending.attempt}.")
    if state.seen:
        said.append(f"It waits for {', '.join(state.seen)} to be complete.")
    return said


def _problem(file: str, command: str, error: Exception) -> str:
    if not isinstance(error, ValidationError) or not error.errors()[0]["loc"]:  # it is no JSON object
        return f"{file} is damaged; headway {command} makes it anew"
    return f"{file} is not what {command} writes: {problem_of(error)}"


@dataclass(frozen=True)
class OpenedStore:
    """A store, and the pipelines that were named with it."""

    slug: str
    """Its name in addresses."""
    store: Store
    pipelines: dict[str, LoadedPipeline] = field(default_factory=dict)
    _texts: dict[str, tuple[str, str]] = field(default_factory=dict)

    @functools.cached_property
    def index(self) -> RunIndex:
        return RunIndex(self.store)

    def registry(self, model: str) -> Registry | None:
        """The registry of a model; None where the store and the named pipelines have none of this name."""
        # a name is looked for among those that are there, and never made into a path
        return Registry(self.store, model) if model in (*self.model_folders(), *self.pipelines) else None

    def run_texts(self, record: RunRecord) -> tuple[str, str]:
        """What lists say of a run's metrics, kept once the run has ended: `flows.tell.paired.run_texts`."""
        if record.run not in self._texts:
            found = run_texts(self.store, record)
            if record.going_on:
                return found
            self._texts[record.run] = found
        return self._texts[record.run]

    def log(self, run: str) -> str | None:
        """The log of a run that the index has; None where there is none."""
        return None if leads_out(self.store, log_path(self.store, run)) else read_log(self.store, run)

    def model_folders(self) -> list[str]:
        """The models with a folder in the registry."""
        return [name for name in registry_names(self.store) if self._is_model(name)]

    def stray(self) -> list[tuple[str, str]]:
        """(path, problem) of what lies in models/ and is not a model."""
        found = [name for name in registry_names(self.store) if not self._is_model(name)]
        return [(f"models/{name}", "is not a model: it has neither versions nor a champion") for name in found]

    def _is_model(self, name: str) -> bool:
        children = self.store.children(self.store.root / "models" / name)
        return any(child.isdigit() or child.endswith(".json") for child in children)

    def models(self) -> list[str]:
        """Every model of the registry and every pipeline that ran or was named, sorted."""
        return sorted({*self.model_folders(), *self.pipelines, *(run.pipeline for run in self.index.runs())})


def opened(pipelines: Sequence[str], stores: Sequence[str]) -> dict[str, OpenedStore]:
    """The stores of these pipelines, and these stores, each once, by slug.

    Raises:
        ConfigError: a pipeline.yaml does not exist or has a mistake.
        StoreError: a folder is not a store.
    """
    found: dict[str, tuple[Store, dict[str, LoadedPipeline]]] = {}
    for name in pipelines:
        loaded = read_pipeline(Path(name))
        store = loaded.open_store()
        found.setdefault(_identity(store), (store, {}))[1][loaded.pipeline.name] = loaded
    for where in stores:
        store = open_store(where)
        if "://" not in where:
            _check_folder(store, where)
        found.setdefault(_identity(store), (store, {}))
    slugs = _slugs((store, pipelines) for store, pipelines in found.values())
    return {
        slug: OpenedStore(slug, store, pipelines)
        for slug, (store, pipelines) in zip(slugs, found.values(), strict=True)
    }


def _identity(store: Store) -> str:
    return store.name if "://" in store.name else str(store.root.resolve())


def _check_folder(store: Store, where: str) -> None:
    folder = store.root
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "there is no such folder"
        raise StoreError(problem, where=where, fix="name the folder that `store:` in pipeline.yaml names")
    inside = sorted(path.name for path in folder.iterdir())
    if inside and not set(inside) & set(_PARTS):
        fix = "name the folder that `store:` in pipeline.yaml names, or the pipeline itself, without --store"
        problem = f"is not a store: it holds none of {', '.join(f'{name}/' for name in _PARTS[:3])}"
        raise StoreError(problem, where=where, fix=fix)


def _slugs(stores: Iterable[tuple[Store, dict[str, LoadedPipeline]]]) -> list[str]:
    """A name for each store: its pipeline's, or its folder's; numbered where two have the same."""
    slugs: list[str] = []
    for store, pipelines in stores:
        place = Path(store.name.split("://")[-1])
        name = next(iter(pipelines)) if len(pipelines) == 1 else place.name
        name = place.parent.name or name if name == "store" else name
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "store"
        numbered = (f"{slug}-{number}" for number in itertools.count(2))
        slugs.append(next(name for name in itertools.chain([slug], numbered) if name not in slugs))
    return slugs
