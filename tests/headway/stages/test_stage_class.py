"""A stage's fingerprint is derived from its fields; its inputs are found by walking over them."""

from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from headway.config import Frozen, Result
from headway.stages import Examples, Key, Part, Ref, Stage, run
from headway.stages.ingested import Ingested
from headway.storage.fingerprint import fingerprint

A, B = "a" * 32, "b" * 32


class Answer(Result):
    total: int


class Judge(Frozen):
    predictions: Ref[Any]
    name: str

    def as_key(self):
        return {"name": self.name, "scored": self.predictions}


class Sum(Stage[Answer]):
    name, version, runs = "sum", 3, f"{__name__}:add"
    numbers: Annotated[tuple[int, ...], Key()]
    scale: Annotated[int, Key("config", "scale", always=True)] = 1
    later: Annotated[int, Key("config", "later")] = 0
    shown: Annotated[dict[str, int], Key(of=sorted)] = Field(default={})
    trained: Annotated[Ref[Answer] | None, Key("inputs", "trained")] = None
    parts: Annotated[tuple[Part, ...], Key("inputs", "parts")] = ()
    judge: Annotated[Judge | None, Key("inputs", spread=True)] = None
    workers: int = 1
    scratch: Path | None = None


def add(request, out, monitor):
    (out / "total").write_text(str(sum(request.numbers)))
    return {"total": sum(request.numbers) * request.scale}


def test_the_key_has_each_field_at_its_place_and_nothing_of_how_it_runs():
    asked = Sum(
        numbers=(1, 2),
        shown={"b": 1, "a": 2},
        trained=Ref(stage="train", fingerprint=A, path="/store/a"),
        parts=[Part(fingerprint=B, path="/store/b", split="eval")],
        judge=Judge(predictions=Ref(fingerprint=B), name="x"),
        workers=7,
        scratch="scratch",
    )
    assert asked.key() == {
        "stage": "sum",
        "version": 3,
        "numbers": [1, 2],
        "config": {"scale": 1},
        "shown": ["a", "b"],
        "inputs": {"trained": A, "parts": [[B, "eval"]], "name": "x", "scored": B},
    }
    assert asked.fingerprint == fingerprint(asked.key())


@given(workers=st.integers(), numbers=st.lists(st.integers(-9, 9)), later=st.integers(0, 2), where=st.text("ab/"))
def test_a_field_at_its_default_and_a_place_on_a_disk_change_no_fingerprint(workers, numbers, later, where):
    plain = Sum(numbers=numbers, trained=Ref(fingerprint=A))
    other = Sum(numbers=numbers, later=later, workers=workers, trained=Ref(fingerprint=A, path=f"/{where}"))
    assert (plain.fingerprint == other.fingerprint) == (later == 0)


def test_the_inputs_are_the_references_wherever_they_stand():
    asked = Sum(
        numbers=(),
        trained=Ref(fingerprint=A, path="a"),
        parts=[Part(path="b"), Part(path="c")],
        judge=Judge(predictions="d", name=""),
    )
    assert [str(path) for ref in asked.inputs() for path in ref.paths()] == ["a", "b", "c", "d"]
    result = {"splits": {"eval": {"shards": [{"file": "1"}, {"file": "2"}]}}}
    assert [*map(str, Examples(path="e", split="eval", result=result).paths())] == ["e/1", "e/2"]


def test_a_value_or_a_path_alone_stands_for_an_output():
    assert Ref[Answer].of(Answer(total=2)).value.total == 2
    assert Sum(numbers=(), trained="folder").trained.file == Path("folder")
    assert Sum(numbers=(), trained=Answer(total=1)).trained.value.total == 1
    assert Sum(numbers=(), trained={"total": 4}).trained.value.total == 4
    with pytest.raises(ValueError, match="no answer"):
        str(Ref[Answer](path="folder").value)
    again = Sum.model_validate_json(Sum(numbers=(3,), trained=Answer(total=1)).model_dump_json())
    assert again.trained.value.total == 1
    assert again.fingerprint == Sum(numbers=(3,), trained=Answer(total=1)).fingerprint


def test_a_stage_runs_alone(tmp_path):
    assert run(Sum(numbers=(1, 2), scale=10), tmp_path / "new" / "folder").total == 30
    assert (tmp_path / "new" / "folder" / "total").read_text() == "3"
    assert Sum.answers() is Answer


def test_an_ingested_span_gives_its_records():
    split = {"rows": 3, "statistics": "statistics/train", "shards": [{"file": "train-0", "rows": [3]}]}
    found = Ingested.model_validate({"columns": [], "splits": {"train": split}}).examples("folder", "train")
    assert found.paths() == [Path("folder").absolute() / "train-0"]
