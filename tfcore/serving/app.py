"""TensorFlow Serving's REST API over one model, as an ASGI application.

    app = make_app(watch, ServeOptions())

    POST /v1/models/NAME[/versions/N]:predict|:classify|:regress
    GET  /v1/models/NAME[/versions/N][/metadata]

The requests and answers are described at https://www.tensorflow.org/tfx/serving/api_rest. Every error is {"error": reason}.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
from fastapi import FastAPI, Request, Response
from numpy.typing import NDArray
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from headway.errors import HeadwayError
from tfcore.export.signatures import DEFAULT, NULLABLE
from tfcore.serving.champion_watch import ChampionWatch
from tfcore.serving.guard import Guard
from tfcore.serving.refusals import Busy, NotServed, RequestError, RequestLimits, TooLarge, answered
from tfcore.serving.request_body import most_values, parsed
from tfcore.serving.request_json import Rows
from tfcore.serving.response_json import Form, answer
from tfcore.serving.served_model import ServedModel

MIB = 1 << 20
SMALL_BYTES, SMALL_CELLS = 32 << 10, 10_000
"""A request of at most so many takes a few milliseconds, and counts toward no limit of the server's memory."""
MAX_BATCH, MAX_WAITING = 1024, 16_384
"""Rows of one call of the model, and rows that may wait for one; more are answered 503."""
MODEL_THREADS = 2
MOST_LETTERS = 1000
"""Of an error."""
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Limits of a server."""

    max_request_bytes: int = 32 * MIB
    """A larger body is answered 413; where the bodies under way are more together, all but small ones are answered 503."""
    limits: RequestLimits = field(default_factory=RequestLimits)
    """Rows and cells of a request; a larger one is answered 413."""
    hosts: tuple[str, ...] = ()
    """Names in the Host header that are right besides localhost, this machine's own name and any IP address; "*": all."""
    reload_seconds: float = 2.0
    """How often the registry is asked for the champion."""


class Waiting:
    """The rows and values of requests that wait for the model or are in it."""

    def __init__(self) -> None:
        self._rows = self._cells = 0

    @contextlib.contextmanager
    def taking(self, rows: Rows, limits: RequestLimits) -> Iterator[None]:
        """Count the rows inside.

        Raises:
            Busy: too many wait already.
        """
        for waiting, more, most, what in (
            (self._rows, rows.count, MAX_WAITING, "rows"),
            (self._cells, rows.cells, 2 * limits.cells, "values"),
        ):
            if waiting and waiting + more > most:
                problem = f"{waiting:,} {what} wait already, and the limit is {most:,}"
                raise Busy(problem, fix="send the request again later")
        self._rows, self._cells = self._rows + rows.count, self._cells + rows.cells
        try:
            yield
        finally:
            self._rows, self._cells = self._rows - rows.count, self._cells - rows.cells


class Answers:
    """The handlers of the addresses.

    Args:
        say: takes a line for a person: a bug of the server's.
    """

    def __init__(self, watch: ChampionWatch, options: ServeOptions, say: Callable[[str], None]):
        self.requests = 0
        self._watch, self._options, self._say = watch, options, say
        self._bytes = 0
        self._model_pool = ThreadPoolExecutor(MODEL_THREADS, thread_name_prefix="model")
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="large-requests")  # one: each may take much memory
        self._waiting = {True: Waiting(), False: Waiting()}
        """Of requests of more than a batch and of others: neither takes the other's place."""

    async def post(self, request: Request, *, verb: str) -> Response:
        """Answer predict, classify or regress."""
        self.requests += 1
        model = self._model(request)
        size = 0
        try:
            self._check_size(_length(request))
            body = bytearray()
            async for chunk in request.stream():
                size, self._bytes = size + len(chunk), self._bytes + len(chunk)
                self._check_size(size)
                body += chunk
            # reading a small one takes less time than handing it to a thread
            inputs = len(model.signatures[DEFAULT].inputs)
            is_small = size <= SMALL_BYTES and most_values(body) * inputs <= SMALL_CELLS
            rows, form = await self._run(is_small, self._read, model, verb, body)
            outputs = await self._predict(model, rows)
        finally:
            self._bytes -= size
        count = sum(array.size for array in outputs.values())
        self._options.limits.check_cells(count, f"the answer has {count:,} values")
        return _json(await self._run(count <= SMALL_CELLS, answer, form, outputs, model.metadata.classes))

    async def _predict(self, model: ServedModel, rows: Rows) -> dict[str, NDArray[Any]]:
        """The model's outputs, from a thread; a request of several calls waits in the thread of large ones."""
        is_large = rows.count > MAX_BATCH
        with self._waiting[is_large].taking(rows, self._options.limits):
            pool = self._pool if is_large else self._model_pool
            return await asyncio.get_running_loop().run_in_executor(pool, called, model, rows)

    def close(self) -> None:
        self._model_pool.shutdown()
        self._pool.shutdown()

    async def _run(self, at_once: bool, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function here, or in the thread of large requests, so that small ones are answered meanwhile."""
        if at_once:
            return function(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    def _read(self, model: ServedModel, verb: str, body: bytearray) -> tuple[Rows, Form]:
        return read_request(model, verb, body, self._options.limits, self._options.max_request_bytes)

    async def status(self, request: Request) -> Response:
        model = self._model(request)
        state = {
            "version": str(model.version),
            "state": "AVAILABLE",
            "status": {"error_code": "OK", "error_message": ""},
        }
        return _json(json.dumps({"model_version_status": [state]}, indent=1).encode())

    async def metadata(self, request: Request) -> Response:
        model = self._model(request)
        value = {
            "model_spec": {"name": model.name, "signature_name": "", "version": str(model.version)},
            "metadata": {"signature_def": {"signature_def": model.signature_def}}
            | ({"times": model.times} if model.times else {}),
        }
        return _json(json.dumps(value, indent=1).encode())

    async def failed(self, request: Request, error: Exception) -> Response:
        """Return any error as JSON."""
        if isinstance(error, ClientDisconnect):
            return Response(status_code=400)  # which nobody reads
        if isinstance(error, RequestError):
            return _error(error.status, answered(error))
        if isinstance(error, HTTPException):
            text = f"Malformed request: {request.method} {request.url.path}"
            text += "" if error.status_code != 405 else f"; {request.method} is not answered here"
            return _error(error.status_code, text)
        text = answered(error) if isinstance(error, HeadwayError) else f"{type(error).__name__}: {error}"
        self._say(f"a request failed by a bug: {text}")
        return _error(500, text)

    def _model(self, request: Request) -> ServedModel:
        """The served model, if the address names it."""
        model, name, version = self._watch.model, request.path_params["name"], request.path_params.get("version")
        if name != model.name:
            raise NotServed(f"Servable not found for request: Latest({name})", fix=f"this server has {model.name!r}")
        if version is not None and version != str(model.version):
            fix = f"version {model.version} is served"
            raise NotServed(f"Servable not found for request: Specific({name}, {version})", fix=fix)
        return model

    def _check_size(self, size: int) -> None:
        limit = self._options.max_request_bytes
        if size > limit:
            raise TooLarge(f"the request is larger than {limit / MIB:g} MiB", fix="send fewer rows at once")
        if self._bytes > max(limit, size) and size > SMALL_BYTES:
            raise Busy(f"requests of {self._bytes / MIB:.0f} MiB are under way", fix="send the request again later")


def called(model: ServedModel, rows: Rows) -> dict[str, NDArray[Any]]:
    """The model's outputs for a request, by one call for every `MAX_BATCH` rows."""
    parts = [
        model.call(rows.signature, {name: a[at : at + MAX_BATCH] for name, a in rows.arrays.items()} | rows.arguments)
        for at in range(0, rows.count, MAX_BATCH)
    ]
    return parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def read_request(
    model: ServedModel,
    verb: str,
    body: bytearray,
    limits: RequestLimits = RequestLimits(),
    most_bytes: int = ServeOptions.max_request_bytes,
) -> tuple[Rows, Form]:
    """A request's rows, and the form in which it is answered; the body is empty afterwards.

    Raises:
        RequestError: the body is not such a request.
        TooLarge: it has more rows, values or text than it may.
    """
    value = parsed(body, limits, most_bytes)
    allowed = ("instances", "inputs") if verb == "predict" else ("examples", "context")
    for key in value:
        if key not in (*allowed, "signature_name"):
            fix = f"there is: signature_name, {', '.join(allowed)}"
            raise RequestError(f"a request to :{verb} has no key {key!r}", fix=fix)
    named = value.get("signature_name", "")
    if not isinstance(named, str):
        raise RequestError("is not a text", where="signature_name", fix="name a signature, such as serving_default")
    read = _of_predict if verb == "predict" else partial(_of_examples, verb=verb)
    return read(model, value, named, limits)


def _of_predict(model: ServedModel, value: dict[str, Any], named: str, limits: RequestLimits) -> tuple[Rows, Form]:
    if ("instances" in value) == ("inputs" in value):
        both = "both instances and inputs" if "inputs" in value else "neither instances nor inputs"
        raise RequestError(f"the request has {both}", fix="send instances, row by row, or inputs, column by column")
    reader = model.reader(named or DEFAULT, limits)
    if "instances" in value:
        return reader.of_instances(value["instances"]), "row"
    return reader.of_inputs(value["inputs"]), "column"


def _of_examples(
    model: ServedModel, value: dict[str, Any], named: str, limits: RequestLimits, *, verb: str
) -> tuple[Rows, Form]:
    task = model.metadata.task
    fitting = "classify" if "classify" in model.signatures else "regress"
    if verb != fitting:
        raise RequestError(f"the model's task is {task}: it cannot {verb}", fix=f"use :{fitting} or :predict")
    if named not in ("", DEFAULT, NULLABLE, "serve_examples"):
        fix = "leave signature_name out, or use :predict"
        raise RequestError(f":{verb} does not answer by the signature {named!r}", where="signature_name", fix=fix)
    rows = model.reader(NULLABLE, limits).of_examples(value.get("examples"), value.get("context"))
    return rows, "regress" if verb == "regress" else "classify"


def _json(body: bytes, status: int = 200) -> Response:
    return Response(body, status, media_type="application/json")


def _length(request: Request) -> int:
    """The bytes that a request says it has; 0 where it does not say."""
    length = request.headers.get("content-length", "")
    return int(length) if length.isdecimal() else 0


def _error(status: int, text: str) -> Response:
    text = text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}..."  # it may quote the request
    response = _json(json.dumps({"error": text}).encode(), status)
    if status == 503:
        response.headers["Retry-After"] = "1"
    return response


def make_app(
    watch: ChampionWatch,
    options: ServeOptions = ServeOptions(),
    say: Callable[[str], None] = lambda line: None,
) -> FastAPI:
    """The application; its `state.answers` counts requests. It ends the watch when it ends."""
    answers = Answers(watch, options, say)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        watch.start(options.reload_seconds)
        yield
        watch.stop()
        answers.close()

    app = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None)
    app.state.answers = answers
    app.add_middleware(Guard, hosts=options.hosts)

    for kind in (RequestError, ClientDisconnect, HTTPException, Exception):
        app.add_exception_handler(kind, answers.failed)
    for base in ("/v1/models/{name}", "/v1/models/{name}/versions/{version}"):
        for verb in ("predict", "classify", "regress"):
            app.add_route(f"{base}:{verb}", partial(answers.post, verb=verb), methods=["POST"])
        app.add_route(f"{base}/metadata", answers.metadata, methods=["GET"])
        app.add_route(base, answers.status, methods=["GET"])
    return app
