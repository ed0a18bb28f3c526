"""Values that are others for all tests of a file."""

import pytest


def patched(values):
    """A fixture to assign to a name of a test file: {dotted name: value} holds while its tests run."""

    @pytest.fixture(scope="module", autouse=True)
    def held():
        with pytest.MonkeyPatch.context() as patch:
            for name, value in values.items():
                patch.setattr(name, value)
            yield

    return held
