"""TensorFlow Serving's REST API over real SavedModels, asked in this process."""

import asyncio
import base64
import contextlib
import copy
import functools
import json
import shutil
import threading
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
import tensorflow as tf

from headway.errors import StoreError
from headway.registry.registry import Registry
from headway.schema.tensor_name import tensor_name
from headway.storage.store import Store, open_store
from tfcore.serving import app as application
from tfcore.serving.app import make_app
from tfcore.serving.served_model import ChampionWatch, ServedModel

DELAY = tensor_name("dep delay")
ROW = {DELAY: 12.5, "hour": 7, "carrier": "UA", "taste": [1.0, 2.5, 3.0], "tags": ["war", "noir"]}
MODEL = "/v1/models/flights"


@contextlib.asynccontextmanager
async def serving(folder, name="flights", *, said=None, version=None, store=None, **options):
    """The application of a model in a folder's store, and a client of it."""
    store = store or Store(folder / "store")
    say = (lambda line: None) if said is None else said.append
    watch = ChampionWatch(Registry(store, name), say=say, version=version)
    app = make_app(watch, **{"reload_seconds": 0.05} | options)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):

        async def predict(*rows, **more):
            return await client.post(f"{MODEL}:predict", content=json.dumps({"instances": rows}), **more)

        yield SimpleNamespace(client=client, predict=predict, watch=watch, app=app, answers=app.state.answers)


def asked(folder, *calls, **options):
    """(status, JSON) of each (address, body); None as the body gets, bytes are sent as they are."""

    async def ask():
        async with serving(folder, **options) as served:
            answers = []
            for url, body in calls:
                content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
                done = await served.client.request("GET" if body is None else "POST", url, content=content)
                answers.append((done.status_code, json.loads(done.content)))
            return answers

    return asyncio.run(ask())


@pytest.fixture(scope="module", autouse=True)
def _loaded_once(served_once):
    """A version of the store that no test changes is loaded once for all of them."""
    load = functools.cache(ServedModel)

    def loaded(path, *more):
        return copy.copy(load(path, *more)) if path.is_relative_to(served_once) else ServedModel(path, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tfcore.serving.served_model.ServedModel", loaded)
        yield


@pytest.fixture(scope="module")
def direct(served_once):
    """The champion's signatures, without any server: direct("serving_default", {name: values})."""
    model = tf.saved_model.load(str(served_once / "store/models/flights/1/saved_model"))

    def call(name, **inputs):
        return {key: value.numpy() for key, value in model.signatures[name](**inputs).items()}

    call.model = model
    return call


def tensors(rows):
    """`serving_default`'s tensors of rows."""
    dtypes = {DELAY: tf.float32, "hour": tf.int64, "taste": tf.float32}
    return {name: tf.constant([row[name] for row in rows], dtypes.get(name, tf.string)) for name in ROW}


def many(n):
    r = np.random.default_rng(0)
    return [
        {
            DELAY: float("nan") if r.random() < 0.2 else float(np.float32(r.normal() * 30)),
            "hour": int(r.integers(0, 24)),
            "carrier": str(r.choice(["AA", "UA", "B6"])),
            "taste": [float(v) for v in r.normal(size=3).astype(np.float32)],
            "tags": ["a", "b"],
        }
        for _ in range(n)
    ]


@pytest.mark.parametrize("n", [1, 2, 64])
def test_rows_and_columns_get_the_signatures_own_predictions_bit_for_bit(served_once, direct, n):
    rows = many(n)
    columns = {name: [row[name] for row in rows] for name in ROW}
    by_row, by_column = asked(
        served_once, (f"{MODEL}:predict", {"instances": rows}), (f"{MODEL}:predict", {"inputs": columns})
    )
    expected = direct("serving_default", **tensors(rows))
    for name in ("probability", "logit"):
        assert np.array([p[name] for p in by_row[1]["predictions"]], np.float32).tobytes() == expected[name].tobytes()
        assert np.array(by_column[1]["outputs"][name], np.float32).tobytes() == expected[name].tobytes()


def test_companions_say_nulls_and_lengths_and_a_missing_nullable_column_is_null(served_once, direct):
    full = {"hour": 7, "carrier": "", "carrier__present": False, DELAY: 0.0, f"{DELAY}__present": False}
    full |= {"taste": [1, 2, 3], "taste__present": True, "tags": ["x", "x"], "tags__length": 1, "tags__present": True}
    short = {"hour": 7, "taste": [1, 2, 3], "tags": ["x"]}
    address = f"{MODEL}/versions/1:predict"
    name = {"signature_name": "serving_nullable"}
    answers = asked(
        served_once,
        (address, name | {"instances": [full]}),
        (address, name | {"instances": [short]}),
        (address, name | {"instances": [short, full]}),
    )
    types = {DELAY: tf.float32, "hour": tf.int64, "taste": tf.float32, "tags__length": tf.int64}
    expected = direct(
        "serving_nullable",
        **{k: tf.constant([v], types.get(k, tf.bool if k.endswith("present") else tf.string)) for k, v in full.items()},
    )
    for status, answer in answers:
        assert status == 200
        for prediction in answer["predictions"]:
            assert prediction["probability"] == pytest.approx(float(expected["probability"][0]), abs=1e-6)
    assert answers[0] == answers[1]


def test_decisions_and_classes(served_once, direct):
    columns = {name: [value, value] for name, value in ROW.items()}
    probability = float(direct("serving_default", **tensors([ROW]))["probability"][0])
    low = {"signature_name": "classify", "inputs": columns | {"threshold": probability - 0.01}}
    high = {"signature_name": "classify", "inputs": columns | {"threshold": probability + 0.01}}
    of_low, of_high = asked(served_once, (f"{MODEL}:predict", low), (f"{MODEL}:predict", high))
    assert of_low[1]["outputs"]["decision"] == [True, True] and of_high[1]["outputs"]["decision"] == [False, False]

    top, far = asked(
        served_once,
        ("/v1/models/flowers:predict", {"signature_name": "classify", "inputs": columns | {"top_k": 3}}),
        ("/v1/models/flowers:predict", {"signature_name": "classify", "inputs": columns | {"top_k": 9}}),
        name="flowers",
    )
    first, same = top[1]["outputs"]["classes"]
    assert first == same and set(first) == {"setosa", "virginica", "versicolor"}
    assert far[0] == 400 and "top_k must be from 1 to 3, not 9;" in far[1]["error"]

    ((_, plain),) = asked(served_once, ("/v1/models/prices:predict", {"instances": [ROW]}), name="prices")
    (price,) = plain["predictions"]
    assert isinstance(price, float), "one output stands for itself, as TensorFlow Serving has it"


def test_serialized_examples_are_answered_and_a_broken_one_is_refused(served_once):
    feature = tf.train.Feature
    features = {
        "hour": feature(int64_list=tf.train.Int64List(value=[7])),
        "carrier": feature(bytes_list=tf.train.BytesList(value=[b"UA"])),
    }
    example = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    encoded = {"b64": base64.b64encode(example).decode()}
    request = {"signature_name": "serve_examples"}
    nullable = {"signature_name": "serving_nullable", "instances": [{"hour": 7, "carrier": "UA"}]}
    good, same, bad = asked(
        served_once,
        (f"{MODEL}:predict", request | {"instances": [encoded]}),
        (f"{MODEL}:predict", nullable),
        (f"{MODEL}:predict", request | {"instances": [{"b64": "AAAA"}]}),
    )
    assert good == same and good[0] == 200
    assert bad[0] == 400 and "Could not parse example" in bad[1]["error"], bad


def test_status_and_metadata_are_tensorflow_servings(served_once):
    status, same, metadata = asked(
        served_once, (MODEL, None), (f"{MODEL}/versions/1", None), (f"{MODEL}/metadata", None)
    )
    state = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    assert status == same == (200, {"model_version_status": [state]})
    found = metadata[1]
    assert found["model_spec"] == {"name": "flights", "signature_name": "", "version": "1"}
    signature = found["metadata"]["signature_def"]["signature_def"]["serving_nullable"]
    assert signature["method_name"] == "tensorflow/serving/predict"
    assert signature["inputs"]["taste"]["dtype"] == "DT_FLOAT"
    sizes = [dim["size"] for dim in signature["inputs"]["taste"]["tensor_shape"]["dim"]]
    assert sizes == ["-1", "3"]


MISTAKES = [
    (f"{MODEL}:predict", b"{", 400, "the body is not JSON"),
    (f"{MODEL}:predict", b'{"' + b"x" * 5000 + b'": 1}', 400, "has the keys ['xxxxx"),
    (f"{MODEL}:predict", {}, 400, "a request to :predict has the keys []; send either instances"),
    (f"{MODEL}:predict", {"instances": [ROW], "inputs": {}}, 400, "has the keys ['inputs', 'instances']"),
    (f"{MODEL}:predict", {"instance": [ROW]}, 400, "a request to :predict has the keys ['instance']"),
    (
        f"{MODEL}:predict",
        {"instances": [ROW], "signature_name": "x"},
        400,
        "no signature 'x'; there is: serving_default",
    ),
    (f"{MODEL}:predict", {"instances": [ROW], "signature_name": 1}, 400, "signature_name: is not a text"),
    (f"{MODEL}:predict", {"instances": [ROW | {"hour": "x"}]}, 400, "instances[0].hour: is 'x'"),
    ("/v1/models/fligths:predict", {"instances": [ROW]}, 404, "Latest(fligths); this server has 'flights', version 1"),
    (
        f"{MODEL}/versions/7:predict",
        {"instances": [ROW]},
        404,
        "Specific(flights, 7); this server has 'flights', version 1",
    ),
    ("/v1/models/other", None, 404, "Latest(other)"),
    (f"{MODEL}:explain", {"instances": [ROW]}, 405, "Malformed request"),
    (f"{MODEL}:classify", {"examples": [ROW]}, 405, "Malformed request"),
    ("/", None, 404, "Malformed request: GET /"),
    (f"{MODEL}:predict", None, 404, "Latest(flights:predict)"),
    (f"{MODEL}/metadata", {}, 405, "Malformed request: POST /v1/models/flights/metadata"),
    (f"{MODEL}:predict", b" " * 300_000, 413, "larger than 0.190735 MiB; send fewer rows"),
]


def test_a_mistake_of_the_client_is_told_with_its_reason(served_once):
    answers = asked(served_once, *((address, body) for address, body, *_ in MISTAKES), max_request_bytes=200_000)
    for (status, answer), (address, body, wanted, words) in zip(answers, MISTAKES, strict=True):
        assert (status, list(answer)) == (wanted, ["error"]), (address, body, answer)
        assert words in answer["error"], answer


def test_a_text_that_ingest_would_reject_for_its_length_is_refused(served_once, monkeypatch):
    monkeypatch.setattr("tfcore.serving.request_json.MAX_CELL_BYTES", 100)
    bodies = [{"instances": [ROW, ROW | {"carrier": "x" * letters}]} for letters in (100, 101)]
    (fits, _), (status, answer) = asked(served_once, *((f"{MODEL}:predict", body) for body in bodies))
    assert (fits, status) == (200, 413)
    assert "instances[1].carrier: is a text of 101 letters; send a shorter text" in answer["error"]


@pytest.mark.long
def test_a_promotion_and_a_rollback_under_load_drop_no_request(served):
    rows = many(3)
    said: list[str] = []
    registry = Registry(Store(served / "store"), "flights")

    async def ask():
        async with serving(served, said=said) as one:
            seen, ended = [], asyncio.Event()

            async def client():
                while not ended.is_set():
                    answer = await one.predict(*rows)
                    seen.append((answer.status_code, tuple(p["logit"] for p in answer.json()["predictions"])))

            async def until(version):
                async with asyncio.timeout(30):
                    while one.watch.model.version != version:
                        await asyncio.sleep(0.01)
                    before = len(seen)
                    while len(seen) < before + 12:  # each of the six clients has asked anew since, and was answered
                        await asyncio.sleep(0.01)

            clients = [asyncio.create_task(client()) for _ in range(6)]
            await asyncio.sleep(0.2)
            for change, version in ((lambda: registry.promote(2, reason="better"), 2), (registry.rollback, 1)):
                await asyncio.to_thread(change)
                await until(version)
            ended.set()
            await asyncio.gather(*clients)
            return seen

    seen = asyncio.run(ask())
    assert {status for status, _ in seen} == {200} and len(seen) > 50
    logits = [np.round(logits, 4).tolist() for _, logits in seen]
    changes = [a for a, b in zip([None, *logits], logits, strict=False) if a != b]
    distinct = {tuple(one) for one in logits}
    assert len(distinct) == 2, "each answer is of one version alone"
    assert len(changes) >= 3 and logits[0] == logits[-1], "the second version, then the first again"
    assert [line.partition(" (")[0] for line in said] == [
        "version 2 is served in place of 1", "version 1 is served in place of 2",
    ]  # fmt: skip


def test_a_damaged_version_is_refused_by_name_and_leaves_the_old_one_serving_until_it_is_restored(served):
    store = Store(served / "store")
    registry = Registry(store, "flights")
    model = registry.version(2).saved_model / "saved_model.pb"
    whole = model.read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 1
    said: list[str] = []

    async def until(true):
        async with asyncio.timeout(60):
            while not true():
                await asyncio.sleep(0.02)

    async def ask():
        async with serving(served, said=said, reload_seconds=2.0) as one:
            await asyncio.to_thread(lambda: registry.promote(2, reason="better"))
            model.write_bytes(damaged)  # before the server looks
            await until(lambda: said)
            answer = await one.predict(ROW)
            assert answer.status_code == 200 and one.watch.model.version == 1
            with pytest.raises(StoreError, match=r"version 2 is damaged: saved_model/saved_model.pb has crc32c"):
                ChampionWatch(registry, version="2")
            model.write_bytes(whole)
            await until(lambda: one.watch.model.version == 2)

    asyncio.run(ask())
    assert len(said) == 2 and "version 1 is served still: " in said[0] and "version 2 is damaged" in said[0]
    assert said[1].startswith("version 2 is served in place of 1")


def test_a_model_that_is_whole_and_cannot_be_loaded_is_refused(served, tmp_path):
    registry = Registry(Store(served / "store"), "flights")
    folder = tmp_path / "other"
    shutil.copytree(registry.version(1).saved_model, folder)
    (folder / "saved_model.pb").write_bytes(b"no model")
    registry.publish(folder, {})
    with pytest.raises(StoreError, match="cannot be loaded"):
        ChampionWatch(registry, version="3")


def test_a_version_that_is_named_is_served_whatever_is_promoted(served):
    async def ask():
        async with serving(served, version="2") as one:
            await asyncio.sleep(0.2)
            return (await one.client.get(MODEL)).json()["model_version_status"][0]["version"]

    assert asyncio.run(ask()) == "2"
    with pytest.raises(StoreError, match="there is no champion yet"):
        ChampionWatch(Registry(Store(served / "store"), "other"))


def test_requests_beyond_the_limit_of_memory_are_answered_503(served_once):
    async def ask():
        async with serving(served_once, max_request_bytes=80_000) as one:
            held = threading.Event()
            call = one.watch.model.call
            one.watch.model.call = lambda *given: (held.wait(10), call(*given))[1]
            body = json.dumps({"instances": [ROW]}).ljust(60_000)
            first = asyncio.create_task(one.client.post(f"{MODEL}:predict", content=body))
            await asyncio.sleep(0.1)
            second = await one.client.post(f"{MODEL}:predict", content=body)
            held.set()
            done = await first
            again = await one.client.post(f"{MODEL}:predict", content=body)
            return [answer.status_code for answer in (done, second, again)]

    assert asyncio.run(ask()) == [200, 503, 200]


def test_a_body_has_ten_seconds_and_more_for_each_part_that_came(served_once, monkeypatch):
    monkeypatch.setattr(application, "GRACE_SECONDS", 2.0)
    monkeypatch.setattr(application, "GRACE_BYTES", 100)
    body = json.dumps({"instances": [ROW]}).ljust(800).encode()

    async def parts(size):
        for at in range(0, len(body), size):
            yield body[at : at + size]
            await asyncio.sleep(0.7)

    async def ask():
        async with serving(served_once) as one:
            return await asyncio.gather(
                *(one.client.post(f"{MODEL}:predict", content=parts(size)) for size in (200, 2))
            )

    fast, slow = asyncio.run(ask())
    assert fast.status_code == 200 and slow.status_code == 408 and slow.headers["connection"] == "close"
    assert slow.json()["error"].startswith("the request did not arrive in time")


@pytest.mark.parametrize("bucket_url", ["gs"], indirect=True)  # the kinds are tests/headway/storage's
def test_a_store_in_a_bucket_is_served(served_once, bucket_url, tmp_path):
    mine, theirs = (open_store(f"{bucket_url}/store", tmp_path / name) for name in ("mine", "theirs"))
    theirs.create()
    registry = Registry(theirs, "flights")
    for version in (1, 2):
        registry.publish(served_once / f"store/models/flights/{version}/saved_model", {})
    registry.promote(1, reason="first model")

    async def ask():
        async with serving(tmp_path, store=mine) as one:
            await asyncio.to_thread(lambda: registry.promote(2, reason="better"))
            async with asyncio.timeout(30):
                while one.watch.model.version != 2:
                    await asyncio.sleep(0.02)
            return await one.predict(ROW)

    assert asyncio.run(ask()).status_code == 200


def test_an_answer_that_would_fill_the_memory_is_refused(served_once, monkeypatch):
    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[7]))
    example = tf.train.Example(features=tf.train.Features(feature={"hour": feature}))
    encoded = {"b64": base64.b64encode(example.SerializeToString()).decode()}
    body = {"signature_name": "serve_examples", "instances": [encoded] * 100}  # three classes and the best for each
    for most, wanted in ((350, 413), (400, 200)):
        monkeypatch.setattr(application, "MOST_VALUES", most)
        ((status, answer),) = asked(served_once, ("/v1/models/flowers:predict", body), name="flowers")
        assert status == wanted, answer
        assert status == 200 or answer["error"].startswith("the answer: has 400 values, more than 350; send fewer rows")


def test_a_large_request_gets_the_answers_of_its_rows_and_others_are_answered_meanwhile(served_once):
    rows = many(3000)

    async def ask():
        async with serving(served_once) as one:
            whole = asyncio.create_task(one.predict(*rows))
            others = [await one.predict(ROW) for _ in "abc"]
            parts = [await one.predict(*rows[at : at + 100]) for at in range(0, 3000, 1000)]
            return await whole, others, parts

    whole, others, parts = asyncio.run(ask())
    found = [p["logit"] for p in whole.json()["predictions"]]
    assert len(found) == 3000 and all(answer.status_code == 200 for answer in others)
    for at, part in zip(range(0, 3000, 1000), parts, strict=True):
        assert [p["logit"] for p in part.json()["predictions"]] == pytest.approx(found[at : at + 100], abs=1e-5)


@pytest.mark.long
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:8501"}, 200),
        ({"Host": "LOCALHOST"}, 200),
        ({"Host": "10.0.0.7:8501"}, 200),
        ({"Host": "[fd00::7]:8501"}, 200),
        ({"Host": "flights.example"}, 200),
        ({"Host": "flights.example", "Origin": "https://flights.example"}, 200),
        ({"Host": "10.0.0.7:8501", "Origin": "https://flights.example"}, 200),  # a proxy's page
        ({"Host": "localhost:8501", "Origin": "http://localhost:8501", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Host": "localhost.evil.example"}, 421),
        ({"Host": "10.0.0.7.evil.example"}, 421),
        ({"Host": "me@localhost"}, 421),
        ({"Host": "localhost/a"}, 421),
        ({"Host": "localhost:x"}, 421),
        ({"Host": ""}, 421),
        ([("Host", "localhost"), ("Host", "localhost")], 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "ftp://localhost"}, 403),
        ({"Host": "localhost:8501", "Origin": "http://localhost:3000"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
)
def test_a_web_page_of_another_site_reads_no_predictions_and_programs_do(served_once, headers, status):
    async def ask():
        async with serving(served_once, hosts=("Flights.example",)) as one:
            return await one.predict(ROW, headers=headers)

    answer = asyncio.run(ask())
    assert answer.status_code == status
    assert (status == 200) == ("predictions" in answer.json())
    assert "access-control-allow-origin" not in answer.headers
    assert (answer.headers.get("connection") == "close") == (status != 200), "else the rest of the body would be read"


def test_a_client_that_leaves_is_no_bug_of_the_servers(served_once):
    said: list[str] = []

    async def ask():
        async with serving(served_once, said=said) as one:
            scope = {
                "type": "http", "method": "POST", "path": f"{MODEL}:predict", "raw_path": b"", "query_string": b"",
                "headers": [(b"host", b"localhost"), (b"content-length", b"99")], "root_path": "", "http_version": "1.1",
            }  # fmt: skip
            messages = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
            sent = []

            async def receive():
                return messages.pop(0)

            async def send(message):
                sent.append(message)

            await one.app(scope, receive, send)
            return sent

    asyncio.run(ask())
    assert not said
