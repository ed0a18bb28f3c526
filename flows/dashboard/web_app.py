"""The dashboard's web application: addresses, who may see them, and the answers. Nothing that is asked by GET is written.

app = make_app(opened(["examples/flights"], []), Access(port=8765))
"""

import traceback
from collections.abc import Callable, Mapping
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from flows.dashboard import changes
from flows.dashboard.layout import HERE, Page, address, render, style_sheet, tag_of
from flows.dashboard.opened_stores import OpenedStore
from flows.dashboard.pages.compare_page import compare_page
from flows.dashboard.pages.model_page import model_page
from flows.dashboard.pages.run_page import run_page
from flows.dashboard.pages.runs_page import runs_page
from flows.dashboard.pages.spans_page import spans_page
from flows.dashboard.pages.store_page import store_page, stores_page
from flows.dashboard.pages.version_page import version_page
from flows.dashboard.request_checks import FORM_BYTES, REPORT_POLICY, Access, Guard
from flows.dashboard.run_index import leads_out
from flows.tell.ending import Ending
from flows.tell.material import Material
from flows.tell.report_page import page as drawn_report
from flows.tell.report_page import path_of
from headway.errors import HeadwayError
from headway.redaction import redact

Note = Callable[[str], None]


class _SignIn(Exception):
    """The asker has no session."""


def _not_there() -> HTTPException:
    return HTTPException(404, "The store has nothing of this name, or no longer.")


def make_app(stores: Mapping[str, OpenedStore], access: Access, note: Note = print) -> FastAPI:
    """The application.

    Args:
        note: hears what the terminal should show: changes, and errors of ours.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    names = {slug: opened.store.name for slug, opened in stores.items()}

    def signed_in(request: Request) -> None:
        if not access.is_session(request.headers):
            raise _SignIn

    def at(store: str) -> OpenedStore:
        if store not in stores:
            raise _not_there()
        return stores[store]

    def answered(request: Request, page: Page | None) -> Response:
        if page is None:
            raise _not_there()
        html = render(page, names)
        tag = tag_of(html)
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return HTMLResponse(html, page.status, headers={"ETag": tag})

    inside = [Depends(signed_in)]

    # --- outside: what is the same for everybody, and the door

    @app.get("/static/dashboard.css")
    def css() -> Response:
        return Response(style_sheet(), media_type="text/css")

    app.mount("/static", StaticFiles(directory=HERE / "static"))

    @app.get("/")
    def first(request: Request, token: str = "") -> Response:
        if token and access.signs_in(token):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(access.cookie, access.session, httponly=True, samesite="strict", path="/")
            if request.headers.get("sec-fetch-site") == "cross-site":
                # of a link in another page: a redirect would still be that page's, and come without the cookie
                answer.status_code = 200
                del answer.headers["location"]
                answer.headers["refresh"] = "0; url=/"
            return answer
        signed_in(request)
        if len(stores) == 1:
            return answered(request, store_page(next(iter(stores.values()))))
        return answered(request, stores_page(stores))

    # --- inside

    @app.get("/stores/{store}", dependencies=inside)
    def of_store(request: Request, store: str) -> Response:
        return answered(request, store_page(at(store)))

    @app.get("/stores/{store}/runs", dependencies=inside)
    def of_runs(
        request: Request,
        store: str,
        page: int = 1,
        pipeline: str = "",
        state: str = "",
        search: str = "",
        sort: str = "",
    ) -> Response:
        asked = {"pipeline": pipeline, "state": state, "search": search[:200], "sort": sort}
        return answered(request, runs_page(at(store), page=page, **asked))

    @app.get("/stores/{store}/compare", dependencies=inside)
    def of_compared(request: Request, store: str, run: Annotated[list[str] | None, Query()] = None) -> Response:
        return answered(request, compare_page(at(store), run or []))

    @app.get("/stores/{store}/runs/{run}", dependencies=inside)
    def of_run(request: Request, store: str, run: str) -> Response:
        return answered(request, run_page(at(store), run))

    @app.get("/stores/{store}/runs/{run}/log", dependencies=inside)
    def of_log(store: str, run: str) -> Response:
        opened = at(store)
        if opened.index.record(run) is None or (text := opened.log(run)) is None:
            raise _not_there()
        return PlainTextResponse(redact(text))

    @app.get("/stores/{store}/runs/{run}/report", dependencies=inside)
    def of_report(store: str, run: str) -> Response:
        html = _report(at(store), run)
        return HTMLResponse(html, headers={"Content-Security-Policy": REPORT_POLICY})

    @app.get("/stores/{store}/spans", dependencies=inside)
    def of_spans(request: Request, store: str, page: int = 1, pipeline: str = "") -> Response:
        return answered(request, spans_page(at(store), page=page, pipeline=pipeline))

    @app.get("/stores/{store}/models/{model}", dependencies=inside)
    def of_model(
        request: Request, store: str, model: str, page: int = 1, history: int = 1, changed: int = 0
    ) -> Response:
        shown = model_page(at(store), model, page=page, history_page=history, changed=changed)
        return answered(request, shown)

    @app.get("/stores/{store}/models/{model}/versions/{number}", dependencies=inside)
    def of_version(request: Request, store: str, model: str, number: int) -> Response:
        return answered(request, version_page(at(store), model, number))

    @app.get("/stores/{store}/models/{model}/versions/{number}/promote", dependencies=inside)
    def ask_promote(request: Request, store: str, model: str, number: int) -> Response:
        return answered(request, changes.confirm(at(store), model, access, number))

    @app.get("/stores/{store}/models/{model}/rollback", dependencies=inside)
    def ask_rollback(request: Request, store: str, model: str) -> Response:
        return answered(request, changes.confirm(at(store), model, access))

    def change(store: str, model: str, kind: str, form: Mapping[str, str]) -> Response:
        opened = at(store)
        try:
            event = changes.changed(opened, model, kind, form, access, note)
        except HeadwayError as error:
            return HTMLResponse(render(changes.refused(opened, model, error), names), 409)
        if event is None:
            raise _not_there()
        note(f"{kind}: version {event.version} is the champion of {model} now ({event.reason})")
        return RedirectResponse(address(store, "models", model, changed=event.version), 303)

    @app.post("/stores/{store}/models/{model}/versions/{number}/promote", dependencies=inside)
    def do_promote(store: str, model: str, number: int, form: Mapping[str, str] = Depends(_form)) -> Response:
        return change(store, model, changes.PROMOTE, {**form, "version": str(number)})

    @app.post("/stores/{store}/models/{model}/rollback", dependencies=inside)
    def do_rollback(store: str, model: str, form: Mapping[str, str] = Depends(_form)) -> Response:
        return change(store, model, changes.ROLLBACK, form)

    # --- what goes wrong

    def problem(request: Request, title: str, error: str, status: int) -> Response:
        ending = Ending(word="error", tone="red", headline=title, error=error)
        page = Page(title, title, ending=ending, every=0)
        return HTMLResponse(render(page, names if access.is_session(request.headers) else {}), status)

    @app.exception_handler(_SignIn)
    def to_sign_in(request: Request, error: Exception) -> Response:
        heading = "Open the address that headway ui printed"
        said = "It ends with ?token=… and stands in the terminal that headway ui runs in."
        return HTMLResponse(render(Page("Sign in", heading, message=said, every=0), {}), 401)

    @app.exception_handler(HeadwayError)
    @app.exception_handler(RequestValidationError)
    @app.exception_handler(HTTPException)
    @app.exception_handler(OSError)
    def known(request: Request, error: Exception) -> Response:
        if isinstance(error, HeadwayError):
            return problem(request, "It cannot be shown", str(error), 409)
        if isinstance(error, OSError):
            said = f"{error.filename}: {error.strerror}" if error.filename else str(error) or type(error).__name__
            return problem(request, "A file of the store cannot be read", said, 500)
        found = error if isinstance(error, HTTPException) else _not_there()
        title = "This page does not exist" if found.status_code == 404 else "This cannot be done"
        return problem(request, title, str(found.detail), found.status_code)

    @app.middleware("http")
    async def whole(request: Request, call_next: Any) -> Response:
        """A bug of ours is said on the terminal; its page says no more than that."""
        try:
            return await call_next(request)
        except Exception as error:
            note(redact("".join(traceback.format_exception(error))))
            return problem(request, "A bug in Headway", f"{type(error).__name__}; the terminal has the rest.", 500)

    app.add_middleware(Guard)  # the last is the outermost: the page of a bug gets the headers too
    return app


async def _form(request: Request) -> Mapping[str, str]:
    """The fields of a form, the last of each name."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
        raise HTTPException(415, "a form was expected")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES:
            raise HTTPException(413, "this form is too large")
    return {name: values[-1] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}


def _report(opened: OpenedStore, run: str) -> str:
    """The report of a run: the one that it wrote, else drawn for this answer."""
    record = opened.index.record(run)
    if record is None:
        raise _not_there()
    path = path_of(opened.store, run)
    if not record.going_on and path.name in opened.store.children(path.parent):
        if leads_out(opened.store, path):
            raise _not_there()
        return opened.store.read(path).decode("utf-8", "replace")
    return drawn_report(Material(opened.store, record))
