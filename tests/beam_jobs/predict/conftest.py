"""The folder of a model, for loaders that look at no file."""

import pytest


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model").mkdir()
    return tmp_path / "model"
