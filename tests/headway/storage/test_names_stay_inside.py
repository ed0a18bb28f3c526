"""No name that stands in a record, is typed, or comes with the data leads out of the store."""

import json
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from flows.config.pipeline import Pipeline
from flows.records import find
from headway.config import load
from headway.errors import ConfigError, HeadwayError
from headway.registry.pointers import check_alias
from headway.registry.registry import Registry
from headway.sources.config import SourceConfig
from headway.sources.spans import spans
from headway.storage import manifest as manifests
from headway.storage.store import Store
from tests.properties import examples
from tests.run_files import save_run

PARTS = st.sampled_from(
    ["..", ".", "", "a", "b.json", "etc", "\\", "..\\x", "C:", "~", "\x00", "a\x00b", "champion", "1"]
)
HOSTILE = st.one_of(st.lists(PARTS, min_size=1, max_size=5).map("/".join), st.text(max_size=12).map("../{}".format))


def _manifest(stage="ingest", fingerprint="f" * 16, path="a.tfrecord"):
    value = {"stage": stage, "fingerprint": fingerprint, "key": {}, "created": "2026-01-01T00:00:00Z", "seconds": 0.0}
    value |= {"tools": {}, "result": {}, "files": [{"path": path, "bytes": 3, "crc32c": "00000000"}]}
    return json.dumps(value).encode()


def _leaves(path):
    """By the system's own rules, on which nothing in Headway rests."""
    root = Path("/srv/store")
    try:
        landed = Path(f"{root}/{path}" if not path.startswith("/") else path).resolve()
    except ValueError:  # a NUL byte
        return True
    return landed == root or not landed.is_relative_to(root)


@given(HOSTILE)
@example("a/../../b")
@example("/etc/passwd")
@examples(200)
def test_a_manifest_whose_member_leads_out_does_not_exist(path):
    found = manifests.manifest_and_attempt(_manifest(path=path), "here")[0]
    if _leaves(path):
        assert found is None
    if found is not None:
        assert found.files[0].path == path and "\\" not in path


@given(HOSTILE, HOSTILE)
@examples(100)
def test_an_output_is_never_outside_of_the_store(stage, fingerprint):
    store = Store(Path("/srv/store"))
    try:
        folder = store.output(stage, fingerprint)
    except HeadwayError:
        return
    assert folder.resolve().parent.parent == Path("/srv/store/stages")


@given(HOSTILE)
@examples(100)
def test_names_of_pipelines_and_aliases_are_plain_words(name):
    assume("/" in name or "\\" in name or "." in name or "\x00" in name or not name)
    with pytest.raises(ConfigError):
        load(Pipeline, {"name": name, "source": {"format": "csv", "path": "a.csv"}, "label": "y"}, where="here")
    with pytest.raises(ConfigError):
        check_alias(name)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store beside files that would be a run, a version and a pointer, if a name could lead to them."""
    folder = tmp_path_factory.mktemp("outer")
    store = Store(folder / "store")
    store.create()
    run = {"run": "20260101-000000-0000", "pipeline": "p", "state": "promoted", "stages": [], "started": "2026-01-01"}
    (folder / "a.json").write_text(json.dumps(run | {"run": "a"}))
    (folder / "b.json").write_text(json.dumps({"version": 1, "history": []}))
    save_run(store, run)
    return store


@given(HOSTILE)
@example("../a")
@example("../../../b")
@examples(100)
def test_runs_and_versions_outside_of_the_store_are_not_found(store, name):
    assume(name != "1")
    for look in (lambda: find(store, name, pipeline="p"), lambda: Registry(store, "p").named(name)):
        try:
            found = look()
        except HeadwayError:
            continue
        assert name == "" and found.run == "20260101-000000-0000"  # every name begins with nothing


@pytest.mark.parametrize("pattern", ["{span}/a.csv", "{span}.csv", "x{span}/a.csv"])
def test_spans_that_are_named_like_a_way_out_are_not_spans(tmp_path, pattern):
    folder = tmp_path / "data"
    for path in ("2024-01/a.csv", "2024-01.csv", "x2024-01/a.csv", "..csv", "...csv", "../a.csv"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("y\n1\n")
    found = spans(SourceConfig.model_validate({"format": "csv", "path": str(folder / pattern)}))
    assert "2024-01" in found and not [span for span in found if "/" in span or span.startswith(".")]
