"""Everything that imports TensorFlow: transforms in the graph, input pipeline, training, evaluation, export.

    trained = tfcore.fit(rows, label="arr_delay > 15")         # rows to a trained model, in one call
    trained.predict(others), trained.export("exported")
    tfcore.deterministic_process()                              # for who wants the same bits in each run

Importing the package itself imports none of it, and the configs need no TensorFlow at all. Once Keras is imported too, its
`load_model` knows Headway's layers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tfcore import keras_layers

if TYPE_CHECKING:
    from tfcore.library.fit import fit
    from tfcore.library.trained import Trained
    from tfcore.runtime.devices import deterministic_process

__all__ = ["Trained", "deterministic_process", "fit"]

_PLACES = {
    "fit": "tfcore.library.fit",
    "Trained": "tfcore.library.trained",
    "deterministic_process": "tfcore.runtime.devices",
}

keras_layers.register_with_keras()


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'tfcore' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
