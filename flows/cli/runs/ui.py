"""`headway ui`: a page on this machine over one or several stores."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from flows.cli.options import Count, JsonOption
from flows.config.extras import require
from headway.errors import ConfigError, HeadwayError
from headway.messages import listed, now
from headway.redaction import redact

if TYPE_CHECKING:
    from flows.dashboard.opened_stores import OpenedStore

HOST, PORT = "127.0.0.1", 8765


def ui(
    *pipelines: str,
    store: Annotated[tuple[str, ...], Parameter(metavar="STORE")] = (),
    port: Count | None = None,
    options: JsonOption = JsonOption(),
) -> int:
    """Show stores until Ctrl-C; on 127.0.0.1 alone. The address holds a token that only whoever sees it here knows.

    Args:
        pipelines: pipeline.yaml files, or their folders (default: this folder).
        store: show this store, without a pipeline: a folder, s3://..., gs://... (may be repeated).
        port: the port; 0 takes any that is free (default: 8765, or any that is free).
    """
    require("ui", where="headway ui")
    named = list(pipelines)
    if not named and not store:
        if not Path("pipeline.yaml").is_file():
            fix = "headway ui PIPELINE names a pipeline.yaml or its folder, headway ui --store STORE a store"
            raise ConfigError("there is no pipeline.yaml in this folder", where=str(Path.cwd()), fix=fix)
        named = ["."]
    from flows.dashboard.opened_stores import opened

    stores = opened(named, store)
    from flows.dashboard.request_checks import Access
    from flows.dashboard.web_app import make_app
    from tfcore.serving.server import BACKLOG, address, run

    with _bound(port) as listener:
        access = Access(port=listener.getsockname()[1])
        app = make_app(stores, access, _say)
        url = f"{address(listener)}/?token={access.token}"
        places = {slug: redact(each.store.name, secrets_only=options.json) for slug, each in stores.items()}
        text = f"{listed(list(places.values()))}: open\n  {url}\nCtrl-C ends it; the token is of this process alone"
        listener.listen(BACKLOG)  # from here on a browser may connect
        # by `answer` the token would be hidden as a secret, which it is for everybody but the reader of this line
        print(json.dumps({"url": url, "stores": places}, indent=1) if options.json else text, flush=True)
        # while its reader reaches for the browser
        threading.Thread(target=_read_ahead, args=(stores,), name="read-ahead", daemon=True).start()
        run(app, listener)
    return 0


def _read_ahead(stores: Mapping[str, OpenedStore]) -> None:
    for each in stores.values():
        with contextlib.suppress(HeadwayError, OSError):  # its page says what is wrong
            each.index.runs()


def _bound(port: int | None) -> socket.socket:
    """A socket on this port; with None on the usual one, or on any where that is taken."""
    from tfcore.serving.server import bound

    if port is None:
        with contextlib.suppress(ConfigError):
            return bound(HOST, PORT)
    return bound(HOST, port or 0)


def _say(line: str) -> None:
    print(redact(f"{now()} {line}"), file=sys.stderr, flush=True)
