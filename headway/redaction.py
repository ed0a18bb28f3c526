"""Keeps secrets out of the texts that leave the process: errors, logs, tracebacks, run records, Prefect's states.

    remember("TOKEN", "s3cr3t-v4lue")        # headway.config.expand does, for each ${TOKEN} in a pipeline.yaml
    redact("no s3cr3t-v4lue in s3://me:pw@bucket/a")       # "no ${TOKEN} in s3://***@bucket/a"
    redacted({"error": "..."})               # the same in every text of a JSON value

What is hidden:

    user and password in a URL               shown as ***
    ${NAME}, where NAME looks like a secret  (KEY, SECRET, TOKEN, PASS, PWD, CRED, AUTH, SAS) from 4 characters on
    any other ${NAME}                        from 8 characters on, as a word of its own, unless it is a number or a date

A value is shown as the ${NAME} that it stood for, also where it stands percent-encoded or escaped. Shorter values are
shown: a text without every "1" would say nothing.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
import threading
import traceback
import urllib.parse
from functools import cache
from types import TracebackType
from typing import Any, TypeVar

Error = TypeVar("Error", bound=BaseException)

_SECRET_NAME = re.compile(r"KEY|SECRET|TOKEN|PASS|PWD|CRED|AUTH|(^|_)SAS(_|$)", re.IGNORECASE)
_SECRET_LENGTH, _LENGTH = 4, 8
_HARMLESS = re.compile(r"[\d\s.,:/_+TZ-]*")
"""Numbers, dates and times."""
# a password may hold a slash; what stands before the first one may be a host and a port
USERINFO = re.compile(r"\b([a-zA-Z][a-zA-Z0-9+.-]*://)(?:[^\s/@:'\"]+:(?!\d+/)[^\s@'\"]*|[^\s/@'\"]*)@")
_hidden: dict[str, re.Pattern[str]] = {}
"""By ${NAME}: how its value looks in a text; the longest value first."""
_values: dict[str, str] = {}


def remember(name: str, value: str) -> None:
    """Hide the value of the environment variable `name` from now on, if it is long enough to be recognized."""
    secret = _SECRET_NAME.search(name) is not None
    if len(value) < (_SECRET_LENGTH if secret else _LENGTH) or (not secret and _HARMLESS.fullmatch(value)):
        return
    if _values.get(name) == value:
        return
    _values[name] = value
    forms = {value, urllib.parse.quote(value, safe=""), urllib.parse.quote(value), urllib.parse.unquote(value)}
    forms |= {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}
    pattern = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True) if form)
    _hidden[name] = re.compile(pattern if secret else rf"(?<!\w)(?:{pattern})(?!\w)")
    for earlier in sorted(_values, key=lambda n: len(_values[n]), reverse=True):
        _hidden[earlier] = _hidden.pop(earlier)


def redact(text: str, *, secrets_only: bool = False) -> str:
    """Replace the hidden values in `text`.

    Args:
        secrets_only: leave the values of variables whose name is an ordinary one: for answers that programs work with,
            whose paths have to be the real ones.
    """
    for name, pattern in list(_hidden.items()):
        if secrets_only and not _SECRET_NAME.search(name):
            continue
        text = pattern.sub(lambda _, name=name: f"${{{name}}}", text)  # type: ignore[misc]
    return USERINFO.sub(r"\1***@", text) if "@" in text else text


def redacted(value: Any, *, secrets_only: bool = False) -> Any:
    """Redact every text in a JSON value, but no key."""
    if isinstance(value, str):
        return redact(value, secrets_only=secrets_only)
    if isinstance(value, dict):
        return {key: redacted(item, secrets_only=secrets_only) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item, secrets_only=secrets_only) for item in value]
    return value


def scrub(error: Error) -> Error | RuntimeError:
    """Redact the texts of `error` and of the errors behind it, for a caller that prints them."""
    seen: set[int] = set()
    behind: list[BaseException | None] = [error]
    while behind:
        current = behind.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        behind += [current.__cause__, current.__context__]
        current.args = tuple(redacted(part) if isinstance(part, str) else part for part in current.args)
        for name in [*vars(current), "filename", "filename2"]:
            if isinstance(attribute := getattr(current, name, None), str | list) and attribute != redacted(attribute):
                setattr(current, name, redacted(attribute))
    text = str(error)
    return error if text == redact(text) else RuntimeError(redact(f"{type(error).__name__}: {text}"))


def forget() -> None:
    """Hide only what is in URLs from now on; for tests."""
    _hidden.clear()
    _values.clear()


@cache
def protect() -> None:
    """Redact the log records, and what Python prints of an uncaught error."""
    before, before_threads, make = sys.excepthook, threading.excepthook, logging.getLogRecordFactory()

    def printed(kind: Any, error: BaseException | None, trace: TracebackType | None) -> bool:
        text = None if error is None else _clean_traceback(kind, error, trace)
        print(text or "", end="", file=sys.stderr)
        return text is not None

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not printed(kind, error, trace):
            before(kind, error, trace)

    def thread_hook(args: threading.ExceptHookArgs) -> None:
        if not printed(args.exc_type, args.exc_value, args.exc_traceback):
            before_threads(args)

    def record(*arguments: Any, **options: Any) -> logging.LogRecord:
        log_record = make(*arguments, **options)
        with contextlib.suppress(Exception):  # arguments that do not fit are told by whoever writes the record
            if (text := log_record.getMessage()) != (clean := redact(text)):
                log_record.msg, log_record.args = clean, ()
        if isinstance(log_record.exc_info, tuple) and log_record.exc_info[1] is not None:
            kind, error, trace = log_record.exc_info
            log_record.exc_text = _clean_traceback(kind, error, trace, end="") or log_record.exc_text
        return log_record

    sys.excepthook, threading.excepthook = hook, thread_hook
    logging.setLogRecordFactory(record)


def _clean_traceback(kind: Any, error: BaseException, trace: TracebackType | None, end: str = "\n") -> str | None:
    """The redacted traceback; None when it contains nothing to hide."""
    text = "".join(traceback.format_exception(kind, error, trace))
    clean = redact(text)
    return None if clean == text else clean.rstrip("\n") + end
