"""TensorFlow Serving's REST API over one model, as an ASGI application.

    app = make_app(watch, hosts=("flights.example",))

    POST /v1/models/NAME[/versions/N]:predict
    GET  /v1/models/NAME[/versions/N][/metadata]

The requests and answers are described at https://www.tensorflow.org/tfx/serving/api_rest. Every error is {"error": reason}.
"""

import asyncio
import base64
import contextlib
import json
import re
import socket
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headway.messages import short
from tfcore.export.signatures import DEFAULT
from tfcore.serving.request_json import MOST_VALUES, RequestError, Rows, check_size, most_values, parse_body
from tfcore.serving.served_model import ChampionWatch, ServedModel
from tfcore.serving.server import GRACE_BYTES, GRACE_SECONDS

MIB = 1 << 20
SMALL_BYTES, SMALL_VALUES = 32 << 10, 10_000
"""The most bytes and values of a small request. A large one waits for the only thread of large requests, to bound memory."""
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]*)?")
_ADDRESS = re.compile(r"[0-9a-f:.]*:[0-9a-f:.]*|[0-9]+(\.[0-9]+){3}")
"""An IP address, which no name server can point elsewhere."""


def make_app(
    watch: ChampionWatch,
    *,
    max_request_bytes: int = 32 * MIB,
    hosts: tuple[str, ...] = (),
    reload_seconds: float = 2.0,
) -> Starlette:
    """Returns the ASGI application; `state.answers.requests` counts its :predict requests. It closes `watch` at its end.

    Args:
        max_request_bytes: a larger body is answered 413. While all bodies under way exceed it together, only small ones pass.
        hosts: names that the Host header may have besides localhost, this machine's name and IP addresses; "*": all.
        reload_seconds: how often the registry is asked for the champion.
    """
    answers = Answers(watch, max_request_bytes)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        follower = asyncio.create_task(watch.follow(reload_seconds))
        with answers.small, answers.large, contextlib.closing(watch):
            yield
            follower.cancel()

    routes = []
    for base in ("/v1/models/{name}", "/v1/models/{name}/versions/{version}"):
        routes.append(Route(f"{base}:predict", answers.post, methods=["POST"]))
        routes += [Route(f"{base}/metadata", answers.metadata), Route(base, answers.status)]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, hosts=hosts)],
        exception_handlers=dict.fromkeys((RequestError, ClientDisconnect, HTTPException, Exception), answers.failed),
        lifespan=lifespan,
    )
    app.state.answers = answers
    return app


class Guard:
    """ASGI middleware that refuses requests that a web page caused, before they are read.

    A page in a browser can send requests to every address that the browser reaches. If the page made its own domain name
    resolve to this machine, the Host header has that foreign name: answered 421. Otherwise the header Origin or Sec-Fetch-Site
    tells that the page is of another site: answered 403. Programs send neither header. They may use localhost, any IP address,
    this machine's name or a name in `hosts`."""

    def __init__(self, app: Any, *, hosts: tuple[str, ...]):
        self._app, self._given = app, {name.lower() for name in hosts}
        self._names = self._given | {"localhost", socket.gethostname().lower()}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        refusal = self.refusal(Headers(scope=scope)) if scope["type"] == "http" else None
        await (error_response(*refusal) if refusal else self._app)(scope, receive, send)

    def refusal(self, headers: Headers) -> tuple[int, str] | None:
        """Returns the HTTP status and the reason with which a request is refused; None for an allowed request."""
        hosts = headers.getlist("host")  # none: of a program that speaks HTTP/1.0
        name = host_of(hosts[0]) if len(hosts) == 1 else ""
        if hosts and not (name in self._names or _ADDRESS.fullmatch(name) or "*" in self._given):
            return 421, f"{hosts[0][:60]!r} is no name of this server; headway serve --allow-host gives it one"
        scheme, _, origin = headers.get("origin", "").partition("://")  # a proxy may speak https to its pages
        is_own_page = scheme in ("http", "https") and (origin in hosts or host_of(origin) in self._given)
        if ("origin" in headers and not is_own_page) or headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return 403, "a page of another site sent this request; ask through a server of that site"
        return None


def host_of(header: str) -> str:
    """Returns the host name in a Host header, in lower case and without the port; "" for a header that is no valid name."""
    found = _HOST.fullmatch(header.lower())
    return found[1].strip("[]") if found else ""


class Answers:
    """The request handlers of the routes."""

    def __init__(self, watch: ChampionWatch, max_request_bytes: int):
        self._watch, self._most, self._bytes, self.requests = watch, max_request_bytes, 0, 0
        self.small, self.large = ThreadPoolExecutor(2, "small-requests"), ThreadPoolExecutor(1, "large-requests")

    async def post(self, request: Request) -> Response:
        """Answers a :predict request; the model computes in a thread."""
        self.requests += 1
        model, loop = self._model(request), asyncio.get_running_loop()
        began, body, size = loop.time(), bytearray(), 0
        try:
            self._check_bytes(int(request.headers.get("content-length", 0)))
            async with asyncio.timeout(GRACE_SECONDS) as patience:
                async for chunk in request.stream():
                    size, self._bytes = size + len(chunk), self._bytes + len(chunk)
                    self._check_bytes(size)
                    body += chunk
                    patience.reschedule(began + GRACE_SECONDS * (1 + size / GRACE_BYTES))
            inputs = len(model.signatures[DEFAULT].inputs)
            is_small = size <= SMALL_BYTES and most_values(body) * inputs <= SMALL_VALUES
            answer = await loop.run_in_executor(self.small if is_small else self.large, answer_json, model, body)
        except TimeoutError:
            raise RequestError("the request did not arrive in time", status=408, fix="send it faster") from None
        finally:
            self._bytes -= size
        return Response(answer, media_type="application/json")

    def _check_bytes(self, size: int) -> None:
        if size > self._most:
            problem = f"the request is larger than {self._most / MIB:g} MiB"
            raise RequestError(problem, status=413, fix="send fewer rows at once")
        if self._bytes > max(self._most, size) and size > SMALL_BYTES:
            problem = f"requests of {self._bytes / MIB:.0f} MiB are under way"
            raise RequestError(problem, status=503, fix="send the request again later")

    async def status(self, request: Request) -> Response:
        right = {"error_code": "OK", "error_message": ""}
        state = {"version": str(self._model(request).version), "state": "AVAILABLE", "status": right}
        return JSONResponse({"model_version_status": [state]})

    async def metadata(self, request: Request) -> Response:
        model = self._model(request)
        spec = {"name": model.name, "signature_name": "", "version": str(model.version)}
        return JSONResponse({"model_spec": spec, "metadata": {"signature_def": {"signature_def": model.signature_def}}})

    def _model(self, request: Request) -> ServedModel:
        """Returns the served model; RequestError (404) if the address names another model or version."""
        model, name, version = self._watch.model, request.path_params["name"], request.path_params.get("version")
        if name != model.name or version not in (None, str(model.version)):
            asked = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            fix = f"this server has {model.name!r}, version {model.version}"
            raise RequestError(f"Servable not found for request: {asked}", status=404, fix=fix)
        return model

    async def failed(self, request: Request, error: Exception) -> Response:
        """Returns the answer to an error as JSON, and logs an error that is a bug."""
        if isinstance(error, ClientDisconnect):
            return Response(status_code=400)  # which nobody reads
        if isinstance(error, RequestError):
            return error_response(error.status, str(error).replace("\n  fix: ", "; "))
        if isinstance(error, HTTPException):
            return error_response(error.status_code, f"Malformed request: {request.method} {request.url.path}")
        self._watch.say(f"a request failed by a bug: {type(error).__name__}: {error}")
        return error_response(500, f"{type(error).__name__}: {error}")


def answer_json(model: ServedModel, body: bytearray) -> str:
    """Returns the answer to a request's body as JSON text, with NaN and infinities unquoted. Empties the body."""
    value = parse_body(body)
    has_columns, rows = "inputs" in value, _rows_of(model, value)
    del value  # it may be large
    outputs = model.call(rows)
    check_size(sum(array.size for array in outputs.values()), "values", "the answer", MOST_VALUES)
    lists = {name: _plain(name, array) for name, array in sorted(outputs.items())}
    single = next(iter(lists.values())) if len(lists) == 1 else None
    if has_columns:
        return json.dumps({"outputs": single or lists})
    each = zip(*lists.values(), strict=True)
    return json.dumps({"predictions": single or [dict(zip(lists, row, strict=True)) for row in each]})


def _rows_of(model: ServedModel, value: dict[str, Any]) -> Rows:
    name, keys = value.get("signature_name", ""), sorted(value.keys() - {"signature_name"})
    if not isinstance(name, str):
        raise RequestError("is not a text", where="signature_name", fix="name a signature, such as serving_default")
    if keys not in (["instances"], ["inputs"]):
        fix = "send either instances, row by row, or inputs, column by column, and optionally signature_name"
        raise RequestError(f"a request to :predict has the keys {short(str(keys), 100)}", fix=fix)
    reader = model.reader(name or DEFAULT)
    return reader.of_inputs(value["inputs"]) if "inputs" in value else reader.of_instances(value["instances"])


def _plain(name: str, array: NDArray[Any]) -> list[Any]:
    """Returns an output as JSON values. Bytes become {"b64": ...} if they are not UTF-8 or the output's name ends in _bytes."""

    def text(value: bytes) -> Any:
        with contextlib.suppress(UnicodeDecodeError):
            if not name.endswith("_bytes"):
                return value.decode()
        return {"b64": base64.b64encode(value).decode()}

    return (np.vectorize(text, otypes=[object])(array) if array.dtype == object else array).tolist()


def error_response(status: int, reason: str) -> Response:
    """Returns an error as JSON. Unless the status is 400, the connection closes, so that the rest of the request is not read."""
    shown = {"error": short(reason, 1000)}  # it may quote the request
    return JSONResponse(shown, status, {} if status == 400 else {"Connection": "close"})
