"""A registry on a local disk, and a SavedModel to publish."""

from pathlib import Path

import pytest

from headway.registry.registry import Registry
from headway.storage.store import Store


@pytest.fixture
def store(tmp_path) -> Store:
    made = Store(tmp_path / "store")
    made.create()
    return made


@pytest.fixture
def registry(store) -> Registry:
    return Registry(store, "flights")


@pytest.fixture
def saved_model(tmp_path) -> Path:
    folder = tmp_path / "exported"
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"graph")
    (folder / "variables" / "variables.index").write_bytes(b"weights")
    return folder


@pytest.fixture
def three(registry, saved_model) -> Registry:
    """Three versions, each promoted in its turn."""
    for number in (1, 2, 3):
        registry.publish(saved_model, {"export": f"e{number}", "run": f"run-{number}"})
        registry.promote(number, reason=f"better than {number - 1}", run=f"run-{number}", basis="better")
    return registry
