"""Machines that share a store in a bucket."""

import pytest

from headway.storage.store import Store, open_store


@pytest.fixture
def machine(bucket_url, tmp_path):
    """Another machine: machine("a") has a working copy of its own of the one store."""

    def made(name: str) -> Store:
        store = open_store(f"{bucket_url}/deep/store", tmp_path / name)
        store.create()
        return store

    return made
