"""Keeps secrets out of the texts that leave the process: errors, logs, tracebacks, run records, Prefect's states.

    remember("TOKEN", "s3cr3t-v4lue")        # headway.config.expand does, for each ${TOKEN} in a pipeline.yaml
    redact("no s3cr3t-v4lue in s3://me:pw@bucket/a")       # "no ${TOKEN} in s3://***@bucket/a"
    redacted({"error": "..."})               # the same in every text of a JSON value

What is hidden:

    user and password in a URL                    shown as ***, as is what follows `Authorization:` and `Bearer`
    a parameter or field of a secret's name       ?sig=..., &X-Amz-Signature=..., ;AccountKey=..., password=...: shown as ***
    ${NAME}, where NAME looks like a secret       (KEY, SECRET, TOKEN, PASS, PWD, CRED, AUTH, SAS) from 4 characters on
    any other ${NAME}                             from 8 characters on, as a word of its own, unless it is a number or a date
    variables of the environment, used or not,    from 8 characters on, unless it is a path, a number or a date
      whose NAME ends like a secret's name,
      and passwords in URLs in other variables

A hidden value is shown as ${NAME}, the variable that holds it. It is also recognized percent-encoded, escaped, and in base64. If
it is JSON, its members with a secret's name are hidden by themselves too. Shorter values are shown: a text without every "1"
would say nothing. Every process of Headway's calls `protect` first, which switches all this on.
"""

import base64
import contextlib
import html
import json
import logging
import os
import re
import sys
import threading
import traceback
import urllib.parse
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

Error = TypeVar("Error", bound=BaseException)

_SECRET_NAME = re.compile(r"KEY|SECRET|TOKEN|PASS|PWD|CRED|AUTH|(^|_)SAS(_|$)", re.IGNORECASE)
_NAMED_SECRET = re.compile(
    r"(KEY|SECRET|TOKEN|PASS|PASSWORD|PASSWD|PASSPHRASE|PWD|CREDENTIAL|CRED|AUTH|(^|_)SAS|(^|_)PAT)S?"
    r"(_(ID|STRING|VALUE|JSON|BASE64|\d+))*",
    re.IGNORECASE,
)
"""How a secret variable's name ends: PGPASSWORD, AWS_ACCESS_KEY_ID; not GIT_AUTHOR_NAME, AUTH_MODE."""
_SECRET_LENGTH, _LENGTH, _LINE_LENGTH = 4, 8, 16
_HARMLESS = re.compile(r"[\d\s.,:/_+TZ-]*")
"""Values that are no secrets: numbers, dates and times."""
# a password may hold a slash or an @; what stands before the first slash may be a host and a port
USERINFO = re.compile(
    r"\b([a-zA-Z][a-zA-Z0-9+.-]*://)(?:[^\s/@:'\"]+:(?!\d+/)[^\s@'\"]*|[^\s/@'\"]*)@(?:[^\s/@'\"]*@)*"
)
_PARAMETER = re.compile(
    r"""((?:^|[?&;,\s"'({\[])[\w.-]*(?:password|passwd|pwd|secret|token|api_?key|access_?key|account_?key)"""
    r"""|[?&;](?:sig|key|auth|code|sas|x-\w+-signature|x-\w+-credential))(=)(?!\*\*\*)[^\s&;,"'(){}\[\]<>]{4,}""",
    re.IGNORECASE,
)
"""A parameter of a query, or a field of a connection string, whose name says that its value is a secret."""
_HEADER = re.compile(
    r"""(\bauthorization["']?\s*[:=,]\s*["']?(?:(?:basic|bearer|digest|token)\s+)?|\bbearer\s+)(?!\*\*\*)[A-Za-z0-9+/._~=:-]{8,}""",
    re.IGNORECASE,
)
_guard = threading.Lock()
_hidden: dict[str, re.Pattern[str]] = {}
"""{NAME of a variable: pattern of its value, plain or encoded, in a text}; the longest value first."""
_values: dict[str, str] = {}
_secrets: set[str] = set()
"""The names of variables whose values are secrets: hidden within words too, and in answers for programs."""


def remember(name: str, value: str, *, secret: bool | None = None) -> None:
    """Hides the value of the environment variable `name` from now on, unless too short, or no secret and only a number or date.

    Args:
        secret: whether the value is a secret; None: the variable's name decides.
    """
    secret = _SECRET_NAME.search(name) is not None if secret is None else secret
    if len(value) < (_SECRET_LENGTH if secret else _LENGTH) or (not secret and _HARMLESS.fullmatch(value)):
        return
    with _guard:
        if _values.get(name) != value:
            _remember(name, value, secret)


def _remember(name: str, value: str, secret: bool) -> None:
    global _hidden
    _values[name] = value
    (_secrets.add if secret else _secrets.discard)(name)
    whole = [value, *(part for part in _passwords(value) if len(part) >= _LENGTH)] if secret else [value]
    if secret and "\n" in value:  # a key of several lines, which a log may take one by one
        whole += [line for line in value.splitlines() if len(line) >= _LINE_LENGTH and not line.startswith("-----")]
    forms = set[str]()
    for part in whole:
        forms |= {part, urllib.parse.quote(part, safe=""), urllib.parse.quote(part), urllib.parse.unquote(part)}
        forms |= {json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1], repr(part)[1:-1]}
        forms |= {html.escape(part), html.escape(part).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")}
    if secret and len(value) >= _LENGTH:
        forms.add(base64.b64encode(value.encode("utf-8", "surrogateescape")).decode().rstrip("="))
    pattern = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True) if form)
    known = _hidden | {name: re.compile(pattern if secret else rf"(?<!\w)(?:{pattern})(?!\w)")}
    # replaced as a whole: another thread may be redacting
    _hidden = {each: known[each] for each in sorted(known, key=lambda each: len(_values[each]), reverse=True)}


def _passwords(value: str) -> Iterator[str]:
    """Yields the secrets within a value: the password in a URL or in user:password, and the keys of a connection string."""
    if match := USERINFO.search(value):
        yield match[0][len(match[1]) : -1].partition(":")[2]
    elif re.fullmatch(r"[\w.@-]+:[^/\s]\S*", value):
        yield value.partition(":")[2]
    for match in _PARAMETER.finditer(value):
        yield match[0][match.end(2) - match.start() :]


def _remember_environment() -> None:
    """Hides the secrets among the environment variables, whether or not a pipeline names the variables."""
    for name, value in os.environ.items():
        if len(value) < _LENGTH or _HARMLESS.fullmatch(value):
            continue
        if re.search(rf"(?:{_NAMED_SECRET.pattern})$", name, re.IGNORECASE):
            if not _is_path(value):
                remember(name, value, secret=True)
                for number, part in enumerate(_members(value), start=1):
                    remember(f"{name}_{number}", part, secret=True)
            continue
        for number, password in enumerate(part for part in _passwords(value) if len(part) >= _LENGTH):
            if "://" in value or "=" in value:  # host:port and the like are no secrets
                remember(name if not number else f"{name}_{number}", password, secret=True)


def _is_path(value: str) -> bool:
    """Returns whether a value is a file's path, such as that of a service account's key. The file or its folder has to exist,
    since a key in base64 may begin with a slash too."""
    with contextlib.suppress(OSError, RuntimeError, ValueError):
        path = Path(value).expanduser()
        below = path.parent != Path(path.anchor) and path.parent.is_dir()
        return value[0] in "/~." and (path.exists() or below)
    return False


def _members(value: str) -> list[str]:
    """Returns the secrets in a value that is JSON: all texts in a list, and the texts in an object under names that secrets have.
    Texts that are short, or look like numbers or times, are left out. Returns [] if the value is not JSON."""
    found: list[str] = []

    def look(item: Any, secret: bool) -> None:
        if isinstance(item, dict):
            for name, member in item.items():
                look(member, _SECRET_NAME.search(name) is not None)
        elif isinstance(item, list):
            for member in item:
                look(member, secret)
        elif isinstance(item, str) and secret and len(item) >= _LENGTH and not _HARMLESS.fullmatch(item):
            found.append(item)

    if value[0] in "{[":
        with contextlib.suppress(ValueError, RecursionError):
            look(json.loads(value), value[0] == "[")
    return found


def redact(text: str, *, secrets_only: bool = False) -> str:
    """Returns the text with each hidden value replaced by ${NAME} or ***.

    Args:
        secrets_only: keep the values of variables that are not secrets, such as paths. This is for answers to programs, which
            need such values.
    """
    for name, pattern in list(_hidden.items()):
        if secrets_only and name not in _secrets:
            continue
        text = pattern.sub(lambda _, name=name: f"${{{name}}}", text)  # type: ignore[misc]
    if "@" in text:
        text = USERINFO.sub(r"\1***@", text)
    if "=" in text:
        text = _PARAMETER.sub(r"\1\2***", text)
    return _HEADER.sub(r"\1***", text)


def redacted(value: Any, *, secrets_only: bool = False) -> Any:
    """Returns a JSON value with every text in it redacted. The keys of dicts are not redacted."""
    if isinstance(value, str):
        return redact(value, secrets_only=secrets_only)
    if isinstance(value, dict):
        return {key: redacted(item, secrets_only=secrets_only) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item, secrets_only=secrets_only) for item in value]
    return value


def scrub(error: Error) -> Error | RuntimeError:
    """Redacts `error` and its causes in place; returns `error`, or a RuntimeError if the text of `error` cannot be changed."""
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
    """Forgets all values to hide; for tests. From then on, only URLs, parameters and headers are redacted."""
    _hidden.clear()
    _values.clear()
    _secrets.clear()


def protect() -> None:
    """Hides the secrets in the present environment. From now on, redacts log records and the tracebacks of uncaught errors."""
    _remember_environment()
    _install()


@cache
def _install() -> None:
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
    """Returns the traceback as redacted text; None when there is nothing to hide in it."""
    text = "".join(traceback.format_exception(kind, error, trace))
    clean = redact(text)
    return None if clean == text else clean.rstrip("\n") + end
