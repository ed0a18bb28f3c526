"""Errors name steps in place of their folders in the store."""

from typing import Annotated, Any

import pytest

from flows.pipeline.engine import Engine, naming_steps
from flows.pipeline.listeners import Reporter
from headway.config import Result
from headway.errors import DataError
from headway.stages.refs import Ref
from headway.stages.stage_class import Key, Stage
from headway.stages.step import Step
from headway.storage.store import Store

A, B = "a" * 32, "b" * 32
TITLES = {("ingest", A): "ingest 2024-01"}


@pytest.mark.parametrize(
    ("where", "named", "find"),
    [
        (f"stages/ingest/{A}/train-00000-of-00004.tfrecord", "train-00000-of-00004.tfrecord of ingest 2024-01", True),
        (f"stages/ingest/{A}", "the output of ingest 2024-01", True),
        (f"stages/statistics/{B}/train/statistics.json", "train/statistics.json of statistics", True),
        (f"stages/.staging/train-{B}-1.2/weights/one.h5", "weights/one.h5 of train", False),
        (f"checkpoints/{B}/step-10", "step-10 of the checkpoints of train", False),
        ("models/churn/1/saved_model", None, False),
    ],
)
def test_a_folder_of_the_store_is_called_by_its_step(where, named, find, tmp_path):
    store = Store(tmp_path / "store")
    place = str(store.root / where)
    with pytest.raises(DataError) as caught, naming_steps(store, TITLES, "train"):
        raise DataError(f"{place}: cannot be read", where=place, fix="run again")
    error = caught.value
    assert error.where == (named or place) and error.problem == f"{named or place}: cannot be read"
    assert error.args == (error.problem,)
    assert error.fix == ("run again" if not find else "run again; headway show latest prints its folder")


class Written(Stage[Result]):
    name, version, runs = "ingest", 1, f"{__name__}:written"


class Broken(Stage[Result]):
    name, version, runs = "statistics", 1, f"{__name__}:broken"
    ingested: Annotated[Ref[Any], Key("inputs", "ingested")]


def broken(request, out, monitor):
    """A stage that cannot read its input."""
    raise DataError("cut off", where=str(request.ingested.file / "a.tfrecord"))


def written(request, out, monitor):
    (out / "a.tfrecord").write_text("rows")
    return {}


def test_a_stage_that_fails_in_an_engine_names_the_step_that_made_its_input(tmp_path):
    store = Store(tmp_path / "store")
    store.create()
    engine = Engine(store, child=None, report=Reporter())
    (made,) = engine.call_many([Step(Written(), "ingest 2024-01")])
    with pytest.raises(DataError) as caught:
        engine.call_many([Step(Broken(ingested=made.ref()), "statistics")])
    assert caught.value.where == "a.tfrecord of ingest 2024-01"
    assert caught.value.fix == "headway show latest prints its folder"
