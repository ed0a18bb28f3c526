"""Errors name steps in place of their folders in the store."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from flows.dag.step import Stage, Step
from flows.execution.engine import Engine
from flows.execution.step_places import naming_steps
from flows.progress.reporter import Reporter
from headway.errors import DataError
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
    assert error.fix == ("run again" if not find else f"run again; headway why {_typed(named)} prints its folder")


def _typed(named):
    title = named.rpartition("of ")[2]
    return f"'{title}'" if " " in title else title


class Request(BaseModel):
    input: Path = Path()


def broken(request: Request, out, monitor):
    """A stage that cannot read its input."""
    raise DataError("cut off", where=str(request.input / "a.tfrecord"))


def written(request: Request, out, monitor):
    (out / "a.tfrecord").write_text("rows")
    return {}


def test_a_stage_that_fails_in_an_engine_names_the_step_that_made_its_input(tmp_path):
    store = Store(tmp_path / "store")
    store.create()
    engine = Engine(store, child=None, monitor_for=Reporter().monitor)
    first = Step(Stage("ingest", f"{__name__}:written"), "ingest 2024-01", {"span": "2024-01"}, dict)
    (made,) = engine.call_many([first])
    second = Step(
        Stage("statistics", f"{__name__}:broken"),
        "statistics",
        {"of": made.fingerprint},
        lambda: {"input": str(made.path)},
    )
    with pytest.raises(DataError) as caught:
        engine.call_many([second])
    assert caught.value.where == "a.tfrecord of ingest 2024-01"
    assert caught.value.fix == "headway why 'ingest 2024-01' prints its folder"
