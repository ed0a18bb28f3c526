"""The model that answers requests: a loaded version, which each new champion replaces.

    watch = ChampionWatch(registry, say=print)
    model = watch.model                   # to be asked once per request: the request ends on the model that it began with
    rows = model.reader("serving_default").of_instances([{"dep_delay": 12.0, "carrier": "UA"}])
    model.call(rows)                      # {"probability": array, "logit": array}
    await watch.follow(seconds=2.0)       # looks at the registry until it is cancelled

A version is loaded only if its files are those that were published. A new champion is loaded and warmed up while the old one
serves, then replaces it. If it cannot be loaded, the old one goes on serving, and loading is tried again.
"""

import asyncio
import contextlib
import functools
import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.errors import HeadwayError, StoreError
from headway.registry.leases import leased_version
from headway.registry.pointers import CHAMPION
from headway.registry.registry import Registry
from headway.user_code.quiet_stderr import startup
from tfcore.export.metadata import describe_model
from tfcore.export.signatures import Signature, Tensor
from tfcore.serving.request_json import RequestError, Rows, SignatureReader

with startup():
    import tensorflow as tf
    from google.protobuf import json_format
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    from tfcore.graph.op_errors import why


class ChampionWatch:
    """Loads the champion, or the version given, as `model`. StoreError: it is missing or damaged. ConfigError: no such alias.

    Args:
        version: always serve this version (a number, previous or an alias); None: serve whichever is champion.
        say: called with a line of text for a person.
    """

    def __init__(
        self, registry: Registry, *, version: str | None = None, say: Callable[[str], None] = lambda line: None
    ):
        self._registry, self._is_pinned, self.say = registry, version is not None, say
        self.model, self._held = self._load(version or CHAMPION)

    async def follow(self, seconds: float) -> None:
        """Looks for a new champion every `seconds` seconds and serves it, without end. Returns at once if `version` is given."""
        wait, said, is_new = seconds, "", True
        while True:
            if is_new:
                # TensorFlow has 400,000 objects: a collection that looks through them stops all answers for half a second.
                # A loaded model refers to itself: the one before would stay
                gc.unfreeze()
                gc.collect()
                gc.freeze()
            if self._is_pinned:
                return
            await asyncio.sleep(wait)
            try:
                is_new = await asyncio.to_thread(self._look)
                wait, said = seconds, ""
            except Exception as error:  # whatever it is, the model that is loaded can be served
                text = str(error) if isinstance(error, HeadwayError) else f"{type(error).__name__}: {error}"
                if text != said:  # once, not every few seconds
                    number = self.model.version
                    self.say(f"the new champion cannot be served, version {number} is served still: {text}")
                wait, said = min(2 * wait, max(60.0, seconds)), text

    def close(self) -> None:
        """Ends the lease that keeps the served version from being removed."""
        self._held.close()

    def _look(self) -> bool:
        """Loads and serves the champion if another version has become champion, and says so; returns whether one has."""
        events, before = self._registry.history(), self.model.version
        if not events or events[-1].version == before:
            return False
        self.model, held = self._load(str(events[-1].version))
        self._held.close()
        self._held = held
        self.say(f"version {self.model.version} is served in place of {before} ({events[-1].kind})")
        return True

    def _load(self, name: str) -> tuple["ServedModel", contextlib.ExitStack]:
        """Returns the loaded model, and a stack whose closing ends the lease that keeps the version from being removed."""
        with contextlib.ExitStack() as stack:
            version = stack.enter_context(leased_version(self._registry, name, "serve", note=self.say))
            self._registry.store.localize([version.saved_model])
            model = ServedModel(version.saved_model, self._registry.name, version.number)
            model.warm_up()
            return model, stack.pop_all()


class ServedModel:
    """One SavedModel in memory. Safe to call from several threads. StoreError: not exported by Headway, or cannot be loaded."""

    def __init__(self, path: Path, name: str, version: int):
        self.name, self.version, self.path = name, version, path
        self.metadata = describe_model(path)
        try:
            described = json.loads((path / "assets.extra" / "signatures.json").read_text(encoding="utf-8"))
            self.signatures = {name: Signature.model_validate(signature) for name, signature in described.items()}
            self._model = tf.saved_model.load(str(path))
        except (OSError, ValueError, tf.errors.OpError) as error:
            raise StoreError(f"cannot be loaded: {str(error).splitlines()[0]}", where=str(path)) from None
        self._readers = {n: SignatureReader(n, one, self.metadata.columns) for n, one in self.signatures.items()}

    def reader(self, signature: str) -> SignatureReader:
        """Returns the reader of requests to a signature; RequestError if there is no such signature."""
        if signature not in self._readers:
            fix = f"there is: {', '.join(self._readers)}"
            raise RequestError(f"there is no signature {signature[:60]!r}", where="signature_name", fix=fix)
        return self._readers[signature]

    def call(self, rows: Rows) -> dict[str, NDArray[Any]]:
        """Returns a signature's {output: [rows, ...]}. RequestError: the graph refuses a value, such as a damaged image."""
        parts = []
        try:
            for at in range(0, rows.count, 1024):  # in several calls, so that others are answered in between
                part = {name: a[at : at + 1024] if a.ndim else a for name, a in rows.arrays.items()}
                tensors = {name: tf.constant(a, tf.string if a.dtype == object else None) for name, a in part.items()}
                parts.append(self._model.signatures[rows.signature](**tensors))
        except (tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError, tf.errors.DataLossError) as error:
            raise RequestError(_reason(error), where=rows.signature, fix="change the values") from None
        return {name: np.concatenate([part[name].numpy() for part in parts]) for name in parts[0]}

    def warm_up(self) -> None:
        """Calls each signature with small batches: the first calls cost most of a second."""
        for name, signature in self.signatures.items():
            for count in (1, 2):
                with contextlib.suppress(RequestError):  # an empty image or Example is refused, which warms up as well
                    self.call(Rows(name, count, {tensor.name: _nothing(tensor, count) for tensor in signature.inputs}))

    @functools.cached_property
    def signature_def(self) -> dict[str, Any]:
        """The SavedModel's own description of its signatures, as TensorFlow Serving's metadata has it."""
        graph = SavedModel.FromString((self.path / "saved_model.pb").read_bytes()).meta_graphs[0]
        shown = {"preserving_proto_field_name": True, "always_print_fields_with_no_presence": True}
        return {name: json_format.MessageToDict(one, **shown) for name, one in sorted(graph.signature_def.items())}


def _nothing(tensor: Tensor, rows: int) -> NDArray[Any]:
    """Returns an array for an input, of `rows` rows or a scalar: its default number or bool, else zeros or empty texts."""
    shape = [rows if place == 0 else size or 1 for place, size in enumerate(tensor.shape)]
    if tensor.dtype == "string":
        return np.full(shape, b"", object)
    return np.full(shape, tensor.default or 0, tensor.dtype)


def _reason(error: tf.errors.OpError) -> str:
    """Returns the reason that TensorFlow gives for an error, without the names of graph nodes."""
    text = why(error).rpartition("<stack traces unavailable> ")[2].rpartition("assertion failed: ")[2]
    return text.strip("[] ").replace("] [", " ")  # an Assert prints each of its values in brackets
