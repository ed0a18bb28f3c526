"""Secrets stay out of every text that leaves the process, and other texts stay as they are."""

import io
import json
import logging
import subprocess
import sys
import textwrap
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from flows.records import RunRecord
from headway import redaction
from headway.config import Frozen, expand, sentences
from headway.errors import ConfigError, DataError
from headway.redaction import redact, redacted, remember, scrub
from headway.storage.filesystem import resolve
from headway.storage.fingerprint import first_difference
from headway.storage.store import Store

SECRET = "hunter2/with+odd=chars"


@pytest.fixture(autouse=True)
def nothing_remembered():
    redaction.forget()
    yield
    redaction.forget()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://KEY:SECRET@bucket/a", "s3://***@bucket/a"),
        ("no s3://KEY:SEC/RET+1@bucket/a, sorry", "no s3://***@bucket/a, sorry"),
        ("postgresql+asyncpg://prefect:pw@db.example/prefect", "postgresql+asyncpg://***@db.example/prefect"),
        ("postgresql://me:p@ss:w@rd@db.example/x", "postgresql://***@db.example/x"),
        ("https://token@host/x", "https://***@host/x"),
        ("s3://bucket/a@b/c", "s3://bucket/a@b/c"),
        ("http://127.0.0.1:4200/api/a@b", "http://127.0.0.1:4200/api/a@b"),
        ("me@example.org", "me@example.org"),
    ],
)
def test_userinfo_of_urls_is_hidden(url, shown):
    assert redact(url) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://a.blob/x?sv=2020&sig=ab%2Fcd&se=1", "https://a.blob/x?sv=2020&sig=***&se=1"),
        ("?X-Amz-Credential=AKIA%2F1&X-Amz-Signature=0123456789", "?X-Amz-Credential=***&X-Amz-Signature=***"),
        ("AccountName=a;AccountKey=Zm9vYmFy==;x", "AccountName=a;AccountKey=***;x"),
        ("{'Authorization': 'Basic aGVhZHdheTphYmM='}", "{'Authorization': 'Basic ***'}"),
        ("authorization: Bearer ey.Jhb-Gci.x", "authorization: Bearer ***"),
        ("host=h password=hunter22 user=u", "host=h password=*** user=u"),
        ("loss=0.1234 monkey=banana key=value tokens=12345", "loss=0.1234 monkey=banana key=value tokens=12345"),
        ("a bearer of news, label: token == 'abcdef'", "a bearer of news, label: token == 'abcdef'"),
    ],
)
def test_secrets_that_no_variable_holds_are_known_by_what_stands_before_them(text, shown):
    assert redact(text) == shown
    assert redact(shown) == shown


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("PGPASSWORD", "a-long-password", "a-long-password"),
        ("AWS_SECRET_ACCESS_KEY", "a-long/key+x", urllib.parse.quote("a-long/key+x", safe="")),
        ("PREFECT_API_AUTH_STRING", "headway:a-long-password", "a-long-password"),
        ("PREFECT_API_AUTH_STRING", "headway:a-long-password", "aGVhZHdheTphLWxvbmctcGFzc3dvcmQ="),
        ("DATABASE", "postgresql://me:a-long-password@db/x", "a-long-password"),
        ("STORAGE", "AccountName=a;AccountKey=a-long-password;x", "a-long-password"),
        ("API_KEY", "a<long>'key'", "a&lt;long&gt;&#39;key&#39;"),
        ("AWS_SECRET_ACCESS_KEY", "/a-long/key+x", "/a-long/key+x"),
        ("AWS_SECRET_ACCESS_KEY", "/a-long-key+x", "/a-long-key+x"),
        ("API_TOKEN", "{a-long-token", "{a-long-token"),
        ("API_TOKEN", ".a-long-token", ".a-long-token"),
        ("API_TOKEN", "~a-long-token", "~a-long-token"),
        ("API_TOKEN", "//" + "a" * 300, "//" + "a" * 300),
    ],
)
def test_secrets_of_the_environment_are_hidden_whether_or_not_a_pipeline_names_them(monkeypatch, name, value, part):
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # it holds the values
    monkeypatch.setenv(name, value)
    redaction.protect()
    assert redact(f"what {part} says", secrets_only=True).replace("}=", "}") == f"what ${{{name}}} says"


def test_secrets_in_credentials_that_are_json_are_hidden_and_the_path_of_such_a_file_is_not(monkeypatch, tmp_path):
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADAN\n"
    monkeypatch.setenv("GCP_CREDENTIALS_JSON", json.dumps({"type": "service_account", "private_key": key, "n": [1]}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    redaction.protect()
    assert redact(f"bad key: {key}") == "bad key: ${GCP_CREDENTIALS_JSON_1}"
    assert redact(json.dumps([key])) == '["${GCP_CREDENTIALS_JSON_1}"]'
    assert redact(f"a service_account in {tmp_path}/key.json") == f"a service_account in {tmp_path}/key.json"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PWD", "/home/somebody"),
        ("SSH_AUTH_SOCK", "/run/agent/1"),
        ("GIT_AUTHOR_NAME", "Somebody Else"),
        ("AUTH_MODE", "production"),
        ("ONE_TIME_KEY", "20130101-10"),
        ("PROXY", "127.0.0.1:8080"),
    ],
)
def test_other_variables_of_the_environment_are_left_alone(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    redaction.protect()
    assert redact(f"what {value} says") == f"what {value} says"


@pytest.mark.parametrize(
    ("name", "value", "hidden"),
    [
        ("TOKEN", "abcd", True),
        ("AWS_SECRET_ACCESS_KEY", "abcd", True),
        ("db_password", "abcd", True),
        ("TOKEN", "abc", False),
        ("DAY", "1", False),
        ("REGION", "eu", False),
        ("MONTH", "2013-01", False),
        ("RELEASE", "2013-01-31", False),
        ("ROWS", "1234567890", False),
        ("LANDING", "/mnt/team-x7/landing", True),
        ("BUCKET", "team-x7-landing", True),
    ],
)
def test_which_values_are_hidden(monkeypatch, name, value, hidden):
    monkeypatch.setenv(name, value)
    assert expand(f"${{{name}}}/a", where="pipeline.yaml") == f"{value}/a"
    assert redact(f"no file {value}/a") == (f"no file ${{{name}}}/a" if hidden else f"no file {value}/a")


def test_an_ordinary_value_is_hidden_as_a_word_of_its_own_and_a_secret_everywhere():
    remember("STAGE", "examples")
    remember("API_KEY", "exam")
    assert redact("examples, counterexamples") == "${STAGE}, counter${API_KEY}ples"


def test_the_longest_value_is_hidden_first():
    remember("A_KEY", "abcdef")
    remember("B_KEY", "abcdefgh")
    assert redact("abcdefgh abcdef") == "${B_KEY} ${A_KEY}"


def test_a_key_of_several_lines_is_hidden_line_by_line_too():
    remember("TLS_KEY", "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END KEY-----\n")
    assert redact("  | MIIEvQIBADANBgkqhkiG9w0B\n  | AQEFAASCBKcwggSjAgEAAoIB") == "  | ${TLS_KEY}\n  | ${TLS_KEY}"
    assert redact("-----BEGIN KEY-----") == "-----BEGIN KEY-----"


@given(st.text(st.characters(codec="utf-8", exclude_characters="$"), min_size=4, max_size=40), st.text(max_size=40))
def test_no_form_of_a_secret_is_left(value, around):
    redaction.forget()
    remember("TOKEN", value)
    if value in "${TOKEN}" or value in around:
        return
    for form in (value, urllib.parse.quote(value, safe=""), json.dumps(value)[1:-1], repr(value)[1:-1]):
        assert redact(f"{around}\n{form}\n{around}") == redact(around) + "\n${TOKEN}\n" + redact(around)
    redaction.forget()


class Counted(Frozen):
    rows: int


def test_everywhere_that_a_text_leaves(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKEN", SECRET)
    path = expand("/data/${TOKEN}/a.csv", where="x")

    error = DataError("is gone", where=path, fix=f"look for {path}")
    assert SECRET not in str(error) and str(error).startswith("/data/${TOKEN}/a.csv: is gone")
    for value in ({"path": path}, "x" * 60 + SECRET):
        with pytest.raises(ValidationError) as wrong:
            Counted(rows=value)
        assert SECRET[:6] not in str(sentences(Counted, wrong.value, {"rows": value}))
    assert SECRET not in str(first_difference({"a": path}, {"a": "b"}))

    store = Store(tmp_path)
    store.create()
    RunRecord(run="1", pipeline="p", state="failed", started="", error=str(error), file=path, spans=(path,)).save(store)
    saved = (store.runs_folder / "1.json").read_text()
    assert SECRET not in saved and "${TOKEN}" in saved

    written = io.StringIO()
    logger = logging.getLogger("test_redaction")
    logger.addHandler(handler := logging.StreamHandler(written))
    try:
        logger.warning("no file %s", path)
        try:
            raise ValueError(path)
        except ValueError:
            logger.exception("failed")
    finally:
        logger.removeHandler(handler)
    assert SECRET not in written.getvalue() and "ValueError: /data/${TOKEN}/a.csv" in written.getvalue()


def test_errors_are_scrubbed_with_those_behind_them():
    remember("TOKEN", SECRET)
    try:
        try:
            raise FileNotFoundError(2, "No such file", f"/data/{SECRET}")
        except OSError as error:
            raise ConfigError("wrong", where=SECRET) from error
    except ConfigError as error:
        clean = scrub(error)
    assert clean is not None and SECRET not in f"{clean.where}{clean.args}{clean.__cause__}"

    class Odd(Exception):
        def __str__(self):
            return f"odd {SECRET}"

    clean = scrub(Odd())
    assert type(clean) is RuntimeError and str(clean) == "Odd: odd ${TOKEN}"


def test_a_url_with_a_password_is_refused_without_showing_it():
    with pytest.raises(ConfigError) as info:
        resolve("s3://AKIA:hunter2@bucket/a")
    assert "hunter2" not in str(info.value) and "s3://***@bucket/a: holds a user or a password" in str(info.value)
    assert "AWS_SECRET_ACCESS_KEY" in str(info.value)


def test_what_python_prints_of_an_uncaught_error():
    script = textwrap.dedent("""
        import threading
        from headway.config import expand
        path = expand("${TOKEN}", where="x")
        thread = threading.Thread(target=open, args=(path,))
        thread.start()
        thread.join()
        raise KeyError(path)
    """)
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env={"TOKEN": SECRET}, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.count("Traceback") == 2
    assert SECRET not in done.stderr and done.stderr.rstrip().endswith("KeyError: '${TOKEN}'")


def test_json_values_keep_their_shape():
    remember("TOKEN", SECRET)
    value = {"a": [SECRET, 1, None, {"b": (True, SECRET)}], SECRET: 2.5}
    remember("LANDING", "/mnt/landing")
    assert redacted([SECRET, "/mnt/landing/a"], secrets_only=True) == ["${TOKEN}", "/mnt/landing/a"]
    assert redacted(value) == {"a": ["${TOKEN}", 1, None, {"b": [True, "${TOKEN}"]}], SECRET: 2.5}
