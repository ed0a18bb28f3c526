"""A step is one stage that is about to run, with a title. An output is what a step stored.

step = Step(TrainRequest(...))
step.fingerprint                      # equal fingerprint = same output = nothing to do
output.value.final_loss, output.ref("predictions.parquet")
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from headway.stages.refs import Ref
from headway.stages.stage_class import Stage
from headway.storage.fingerprint import Difference, fingerprint
from headway.storage.store import Store

Answer = TypeVar("Answer", bound=BaseModel)
Read = TypeVar("Read", bound=BaseModel)


class NotRunYet(Exception):
    """Raised when a plan asks for the answer of a step that has not run yet."""


@dataclass(frozen=True)
class Step:
    """A stage that is about to run, with its title in the run."""

    stage: Stage[Any]
    title: str = ""
    """The title of the step, unique in a run; by default the stage's name."""
    runtime: dict[str, object] = field(default_factory=dict)
    """The arguments that change how the stage runs, not what it writes, such as the runner."""

    def __post_init__(self) -> None:
        if not self.title:
            object.__setattr__(self, "title", self.stage.name)

    @cached_property
    def key(self) -> dict[str, Any]:
        return self.stage.key()

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.key)

    def output(self, path: Path, result: dict[str, Any] | None, **facts: Any) -> "Output[Any]":
        """Returns the output of the step in the folder `path`. `result` is its answer as JSON; None: the step has not run."""
        return Output(
            self.title, self.stage.name, self.fingerprint, path, result, answers=self.stage.answers(), **facts
        )


@dataclass(frozen=True)
class Output(Generic[Answer]):
    """The stored output of a step; `result` is None in a plan, for a step that has not run."""

    title: str
    stage: str
    fingerprint: str
    path: Path
    result: dict[str, Any] | None
    hit: bool = False
    """Whether the store had the output already, so that the step did not run."""
    seconds: float = 0.0
    why: Difference | None = None
    """The reason why the step had to run: the first difference from the key of the most similar stored output."""
    bytes: int = 0
    """The bytes of the output's files."""
    answers: type[Answer] | None = None
    """The class of `value`, a pydantic model. None: `value` fails, and `read` has to be given the class."""

    @property
    def known(self) -> bool:
        """Returns whether the step's answer is known. In a plan, the answer of a step that has yet to run is not."""
        return self.result is not None

    def json(self) -> dict[str, Any]:
        """Returns the answer as JSON.

        Raises:
            NotRunYet: the step has not run, as in a plan.
        """
        if self.result is None:
            raise NotRunYet(f"{self.title} has not run")
        return self.result

    def read(self, answers: type[Read]) -> Read:
        """Returns the answer as an instance of the pydantic model `answers`.

        Raises:
            NotRunYet: the step has not run.
            ValidationError: the answer does not fit the model.
        """
        return answers.model_validate(self.json())

    @cached_property
    def value(self) -> Answer:
        """The answer as an instance of the stage's answer model; NotRunYet when the step has not run."""
        assert self.answers is not None, f"what {self.title} answers is not known"
        return self.read(self.answers)

    def ref(self, inside: str | None = "") -> Ref[Any]:
        """Returns a reference to the output, or to its file or folder `inside`. None: the reference has no path."""
        path = None if inside is None else self.path / inside
        return Ref(stage=self.stage, fingerprint=self.fingerprint, path=path)


def title_of(steps: Sequence[Step]) -> str:
    """Returns one title for steps of one stage that run at once: a single step's own title, or "ingest (12)" for twelve."""
    return steps[0].title if len(steps) == 1 else f"{steps[0].stage.name} ({len(steps)})"


def find_output(
    store: Store, stage: str, fingerprint: str, title: str, answers: type[Answer] | None = None
) -> Output[Answer] | None:
    """Returns the output of a step from the store; None when the store has none, or a damaged one."""
    if (manifest := store.find(stage, fingerprint)) is None:
        return None
    path = store.output(stage, fingerprint)
    return Output(title, stage, fingerprint, path, manifest.result, hit=True, bytes=manifest.size, answers=answers)
