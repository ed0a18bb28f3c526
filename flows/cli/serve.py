"""`headway serve`: answers TensorFlow Serving's REST API for the champion of a pipeline."""

import os
import sys
from typing import Annotated

from cyclopts import Parameter

from flows.cli.commands import answer, store_of
from flows.cli.options import Count, Limit, Options, Pause, PipelinePath
from flows.config.extras import require
from headway.messages import counted, now


def serve(
    pipeline: PipelinePath = ".",
    /,
    *,
    host: str = "127.0.0.1",
    port: Count = 8501,
    version: str | None = None,
    max_request_mib: Annotated[Limit, Parameter(metavar="MIB")] = 32.0,
    allow_host: Annotated[tuple[str, ...], Parameter(metavar="NAME")] = (),
    reload_seconds: Pause = 2.0,
    options: Options = Options(),
) -> int:
    """Serve until Ctrl-C or SIGTERM; then answer the requests in progress, and exit with 0.

    Args:
        host: the address to listen on; 0.0.0.0: all addresses of this machine.
        port: the port; 0 takes any that is free.
        version: serve this version and no other: a number, previous or an alias (default: always the champion).
        max_request_mib: the largest request; a larger one is answered 413.
        allow_host: a name by which clients reach the server, besides localhost, this machine's name and IP addresses;
            '*': any, also that of a web page.
        reload_seconds: how often to look for a new champion.
    """
    loaded, store = store_of(pipeline, options)
    require("serve", where="headway serve")
    from tfcore.serving.server import BACKLOG, address, bound, run

    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # on the CPU, as the replay predicted
    with bound(host, port) as listener:  # before TensorFlow is imported: a port in use is said at once
        _say(f"loading {loaded.pipeline.name}")
        from headway.registry.registry import Registry
        from tfcore.serving.app import MIB, make_app
        from tfcore.serving.served_model import ChampionWatch

        watch = ChampionWatch(Registry(store, loaded.pipeline.name), version=version, say=_say)
        size, hosts = int(max_request_mib * MIB), (host, *allow_host)
        app = make_app(watch, max_request_bytes=size, hosts=hosts, reload_seconds=reload_seconds)
        url = f"{address(listener)}/v1/models/{loaded.pipeline.name}"
        text = f"version {watch.model.version} at {url}:predict; Ctrl-C ends it"
        listener.listen(BACKLOG)  # from here on a client may connect
        answer(options, {"url": url, "version": watch.model.version}, text)
        sys.stdout.flush()
        run(app, listener)
    _say(f"ended; {counted(app.state.answers.requests, 'request')} answered")
    return 0


def _say(line: str) -> None:
    print(f"{now()} {line}", file=sys.stderr, flush=True)
