"""A registry on a local disk."""

import pytest

from headway.registry.registry import Registry


@pytest.fixture
def registry(store) -> Registry:
    return Registry(store, "flights")


@pytest.fixture
def three(registry, saved_model) -> Registry:
    """Three versions, each promoted in its turn."""
    for number in (1, 2, 3):
        registry.publish(saved_model, {"export": f"e{number}", "run": f"run-{number}"})
        registry.promote(number, reason=f"better than {number - 1}", run=f"run-{number}", basis="better")
    return registry
