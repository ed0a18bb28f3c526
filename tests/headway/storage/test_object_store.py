"""Objects put, got and listed at endpoints of S3 and Cloud Storage on this machine, through connections that break."""

import importlib
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import google_crc32c
import pytest

from headway.errors import DataError, HeadwayError, StoreError
from headway.storage import filesystem
from headway.storage.bucket import Bucket
from headway.storage.manifest import checksum
from tests.waiting import until


@pytest.fixture
def bucket(bucket_url):
    return Bucket(f"{bucket_url}/deep/store")


def crc(data: bytes) -> str:
    return f"{google_crc32c.value(data):08x}"


def test_what_was_put_is_got_and_listed(bucket, tmp_path):
    data = {f"a/{n}": bytes([n]) * (n * 7_000_003) for n in range(3)}
    for key, value in data.items():
        (tmp_path / key.replace("/", "-")).write_bytes(value)
    bucket.put_all((key, tmp_path / key.replace("/", "-"), crc(value)) for key, value in data.items())
    assert {key: found.bytes for key, found in bucket.listing("a").items()} == {k: len(v) for k, v in data.items()}
    for key, value in data.items():
        bucket.get(key, tmp_path / "got" / key, len(value), crc(value))
    assert all((tmp_path / "got" / key).read_bytes() == value for key, value in data.items())
    bucket.copy("a/1", tmp_path / "copied" / "a")
    assert (tmp_path / "copied" / "a").read_bytes() == data["a/1"]
    bucket.copy("a/9", tmp_path / "copied" / "b")
    assert [path.name for path in (tmp_path / "copied").iterdir()] == ["a"]
    assert bucket.read("a/1") == data["a/1"] and bucket.read("a/9") is None and bucket.listing("b") == {}
    assert abs(bucket.listing("a")["a/1"].changed / 1e9 - time.time()) < 60
    bucket.duplicate("a/1", "a/3")
    bucket.get("a/3", tmp_path / "duplicate", len(data["a/1"]), crc(data["a/1"]))
    bucket.delete(["a/1", "a/3", "a/9"])
    assert sorted(bucket.listing("")) == ["a/0", "a/2"]
    bucket.delete_folder("a")
    bucket.delete_folder("never")
    assert bucket.listing("") == {}


def test_an_object_with_other_bytes_is_named(bucket, tmp_path):
    bucket.write("x/shard", b"abcdef")
    with pytest.raises(StoreError, match=r"deep/store/x/shard: has crc32c .* instead of .*its bytes changed"):
        bucket.get("x/shard", tmp_path / "a", 6, crc(b"abcdeg"))
    with pytest.raises(StoreError, match="has 6 bytes instead of 7"):
        bucket.get("x/shard", tmp_path / "a", 7, crc(b"abcdefg"))
    with pytest.raises(StoreError, match=r"x/none: is gone"):
        bucket.get("x/none", tmp_path / "a", 7, crc(b"abcdefg"))


def test_a_file_that_changed_before_its_put_is_refused(bucket, tmp_path):
    (tmp_path / "a").write_bytes(b"other")
    with pytest.raises(StoreError, match="changed on the disk"):
        bucket.put("a", tmp_path / "a", crc(b"bytes"))


def test_folders_are_what_the_names_of_objects_say(bucket):
    for key in ("raw/a/1/x", "raw/a/2/x", "raw/b/1/y", "top"):
        bucket.write(key, b"1")
    assert bucket.children("raw") == ["a", "b"] and bucket.children("raw/a") == ["1", "2"]
    assert bucket.children("") == ["raw", "top"] and bucket.children("none") == []
    assert filesystem.kind(bucket.address("raw/a")) == "folder" and filesystem.kind(bucket.address("top")) == "file"
    assert filesystem.kind(bucket.address("non")) is None
    assert filesystem.matches(bucket.address("raw/?/1")) == [bucket.address("raw/a/1"), bucket.address("raw/b/1")]
    assert filesystem.matches(bucket.address("raw/*/*/x")) == [bucket.address("raw/a/1/x"), bucket.address("raw/a/2/x")]
    assert filesystem.below(bucket.address("raw/a")) == [bucket.address("raw/a/1/x"), bucket.address("raw/a/2/x")]
    bucket.delete_folder("raw/a")
    assert sorted(bucket.listing("")) == ["raw/b/1/y", "top"]


def test_the_empty_object_of_a_folder_that_a_person_has_made_is_no_file(bucket):
    files, base = filesystem.resolve(bucket.url)
    files.create_dir(f"{base}/raw/a", recursive=True)
    bucket.write("raw/a/1/x", b"1")
    bucket.write("raw/a/2", b"")
    for prefix in ("", "raw", "raw/a/"):
        assert sorted(bucket.listing(prefix)) == ["raw/a/1/x", "raw/a/2"]
    assert [bucket.children(prefix) for prefix in ("", "raw", "raw/a")] == [["raw"], ["a"], ["1", "2"]]


def test_an_object_whose_name_is_no_path_is_named_at_once_as_the_one_to_delete(s3, bucket_name):
    client = pytest.importorskip("boto3").client("s3", endpoint_url=s3)
    for name in ("raw/a//b", "raw/../b"):
        client.put_object(Bucket=bucket_name, Key=f"store/{name}", Body=b"1")
        began = time.monotonic()
        with pytest.raises(StoreError, match=rf"store/raw: .*store/{name}.*\n  fix: delete this object"):
            Bucket(f"s3://{bucket_name}/store").listing("raw")
        assert time.monotonic() - began < 0.9, "without another try"
        client.delete_object(Bucket=bucket_name, Key=f"store/{name}")


def test_there_is_no_such_bucket(bucket_url, tmp_path):
    scheme = bucket_url[:2]
    bucket = Bucket(f"{scheme}://headway-never/store")
    with pytest.raises(StoreError, match="there is no bucket 'headway-never'"):
        bucket.check()
    with pytest.raises(StoreError, match=rf"{scheme}://headway-never/store/a"):
        bucket.write("a", b"1")


def test_a_cut_connection_is_tried_again(proxy, bucket_name, tmp_path):
    bucket = Bucket(f"s3://{bucket_name}/store")
    (tmp_path / "a").write_bytes(b"x" * 3_000_000)
    proxy.limit, proxy.cuts = 1_000_000, 2
    size, digest = checksum(tmp_path / "a")
    bucket.put("a", tmp_path / "a", digest)
    assert proxy.cut == 2
    bucket.get("a", tmp_path / "b", size, digest)


def test_a_put_that_is_cut_every_time_leaves_nothing(impatient, proxy, bucket_name, tmp_path):
    bucket = Bucket(f"s3://{bucket_name}/store")
    (tmp_path / "a").write_bytes(b"x" * 3_000_000)
    digest = checksum(tmp_path / "a")[1]
    proxy.limit, proxy.cuts = 1_000_000, 10**9
    with pytest.raises(StoreError, match=r"://.*/store/a: .*\n  fix: check the bucket"):
        bucket.put("a", tmp_path / "a", digest)
    assert proxy.cut == 2
    assert bucket.listing("") == {}
    proxy.cuts = 0
    bucket.put("a", tmp_path / "a", digest)
    assert bucket.listing("")["a"].bytes == 3_000_000


MANY = [f"many/{n % 100:02d}/{n:05d}" for n in range(3_500)]
"""More than three answers to a listing, of a thousand objects each, hold."""


@pytest.mark.long
def test_thousands_of_objects_are_listed_by_a_request_a_thousand(proxy, bucket_name):
    # into the S3 server's own memory, since its puts take most of a minute
    behind = importlib.import_module("moto.s3.models").s3_backends["123456789012"]["aws"]
    for name in MANY:
        behind.put_object(bucket_name, f"store/{name}", b"1")
    bucket = Bucket(f"s3://{bucket_name}/store")
    bucket.listing("many")
    assert 4 <= proxy.requests <= 6
    filesystem.below(bucket.address("many"))
    assert proxy.requests <= 10
    found = bucket.listing("many")
    assert sorted(found) == sorted(MANY) and {f.bytes for f in found.values()} == {1}
    assert len(bucket.children("many")) == 100
    assert len(filesystem.matches(bucket.address("many/0?/*"))) == 350
    assert len(filesystem.below(bucket.address("many"))) == 3_500


def test_an_object_that_is_replaced_and_deleted_while_it_is_read_is_old_new_or_none(bucket):
    old, new = b'{"version": 1}\n', b'{"version": 2, "previous": 1}\n'
    over = threading.Event()

    def work():
        while not over.is_set():
            for change in (
                lambda: bucket.write("x", old),
                lambda: bucket.write("x", new),
                lambda: bucket.delete(["x"]),
            ):
                change()
                time.sleep(0.02)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert {bucket.read("x") for _ in range(50)} <= {old, new, None}
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
def test_cloud_storage_that_cannot_be_reached_is_named(impatient, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
    bucket = Bucket("gs://team/store")
    with pytest.raises(StoreError, match=r"gs://team/store/stages: .*\n  fix: check the bucket"):
        bucket.listing("stages")
    with pytest.raises(DataError, match=r"gs://team/a.csv: cannot be read: "):
        filesystem.kind("gs://team/a.csv")


class _Answer(BaseHTTPRequestHandler):
    """Answers each request alike, or never."""

    protocol_version = "HTTP/1.1"

    def handle_any(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests += 1
        if self.server.answer is None:
            self.server.over.wait(20)
            self.close_connection = True
            return
        status, code, message = self.server.answer
        body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any


@pytest.fixture
def endpoint(monkeypatch):
    """A server in place of S3 and Cloud Storage; set `answer` to (status, code, message)."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answer) as server:
        server.answer, server.requests, server.over = None, 0, threading.Event()
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name in ("AWS_ENDPOINT_URL", "STORAGE_EMULATOR_HOST"):
            monkeypatch.setenv(name, server.url)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "test")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        filesystem._filesystem.cache_clear()
        yield server
        server.over.set()
        server.shutdown()
    filesystem._filesystem.cache_clear()


def requests_of(server, count):
    """How often it was asked: its threads may count the last of them after the client has given up."""
    until(lambda: server.requests >= count, 30)
    return server.requests


def _asked(bucket):
    """What a bucket is asked for, by the right that it takes on S3 and on Cloud Storage."""
    return {
        "s3:ListBucket|storage.objects.list": lambda: bucket.listing("stages"),
        "s3:GetObject|storage.objects.get": lambda: bucket.read("a"),
        "s3:PutObject|storage.objects.create": lambda: bucket.create("a", b"1"),
        "s3:DeleteObject|storage.objects.delete": lambda: bucket.delete(["a"]),
    }


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_an_endpoint_that_never_answers_is_named_and_asked_four_times_where_that_changes_nothing(
    endpoint, scheme, monkeypatch
):
    monkeypatch.setattr(filesystem, "_SILENT_SECONDS", 0.2)
    bucket = Bucket(f"{scheme}://team/store")
    for right, ask in _asked(bucket).items():
        tries = 4 if "list" in right or "get" in right else 1  # of another the answer may be all that is lost
        endpoint.requests = 0
        said = rf"{scheme}://team/store/.*: no answer for 0.2 s\n  fix: .*{endpoint.url}"
        with pytest.raises(StoreError, match=said):
            ask()
        assert requests_of(endpoint, tries) == tries


def test_an_upload_to_an_endpoint_that_never_answers_is_tried_by_one_client(endpoint, monkeypatch, tmp_path):
    monkeypatch.setattr(filesystem, "_SILENT_SECONDS", 1.0)
    monkeypatch.setattr(filesystem, "TRIES", 2)
    (tmp_path / "a").write_bytes(b"1")
    with pytest.raises(StoreError, match=rf"s3://team/store/a: .*Timeout was reached.*\n  fix: .*{endpoint.url}"):
        Bucket("s3://team/store").put("a", tmp_path / "a", crc(b"1"))
    assert requests_of(endpoint, 2) == 2


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_a_refusal_is_told_at_once_with_the_right_that_is_missing(endpoint, scheme, tmp_path):
    endpoint.answer = 403, "AccessDenied", "Access Denied"
    bucket = Bucket(f"{scheme}://team/store")
    (tmp_path / "a").write_bytes(b"1")
    asked = _asked(bucket) | {
        "s3:PutObject|storage.objects.(create)": lambda: bucket.put("a", tmp_path / "a", crc(b"1")),
        "s3:ListBucket|storage.objects.(list)": lambda: filesystem.below(f"{scheme}://team/raw"),
    }
    for right, ask in asked.items():
        endpoint.requests = 0
        with pytest.raises(HeadwayError, match=rf"{scheme}://team/.*refuses it: .*Denied.*\n  fix: give .*({right})"):
            ask()
        assert endpoint.requests == 1
    with pytest.raises(StoreError, match=r"\.probe-.*\n  fix: give .*(s3:PutObject|storage.objects.create)"):
        bucket.check()


@pytest.mark.parametrize(
    ("answer", "fix"),
    [
        ((403, "InvalidAccessKeyId", "It does not exist in our records."), "check the credentials: AWS_ACCESS_KEY_ID"),
        ((403, "RequestTimeTooSkewed", "The difference is too large."), "set this machine's clock"),
        ((400, "AuthorizationHeaderMalformed", "the region 'us-east-1' is wrong"), "set AWS_REGION"),
        ((301, "PermanentRedirect", "must be addressed by the specified endpoint"), "set AWS_REGION"),
    ],
)
def test_wrong_keys_clocks_and_regions_are_told_at_once(endpoint, answer, fix):
    endpoint.answer = answer
    with pytest.raises(StoreError, match=rf"s3://team/store/stages: the bucket refuses it: .*\n  fix: {fix}"):
        Bucket("s3://team/store").listing("stages")
    assert endpoint.requests == 1


def test_a_server_that_is_busy_is_asked_again(endpoint):
    endpoint.answer = 503, "SlowDown", "Please reduce your request rate."
    with pytest.raises(StoreError, match="SlowDown: Please reduce") as raised:
        Bucket("s3://team/store").read("a")
    assert endpoint.requests == 4 and raised.value.where == "s3://team/store/a"


def test_what_cloud_storage_finds_wrong_with_a_raw_file_s_bucket_is_no_traceback(endpoint):
    endpoint.answer = 400, "InvalidBucketName", "The specified bucket is not valid."
    said = r"gs://Team_/raw: cannot be read: .*InvalidBucketName.*\n  fix: check the buck"
    with pytest.raises(DataError, match=said):
        filesystem.below("gs://Team_/raw")


def test_an_object_whose_name_has_control_characters_is_named(bucket):
    for name in ("a\tb", "a\nb"):
        with pytest.raises(StoreError, match=r"Could not parse path.*a\\[tn]b.*\n  fix: name it without control"):
            bucket.write(name, b"1")
