"""References from the fields of a stage to outputs of other stages.

    Ref(stage="train", fingerprint="3f2a...", path=folder, answer=trained)
    Ref.of(parameters)                # an answer without an output in a store, as in a test
    Ref[TransformParameters].of(parameters).value

Only the fingerprint of a reference enters the key of the stage that reads it. No other field of a request may name a path in
the store, since fetching, damage checks and lineage look at references alone (`Stage.inputs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import Field, model_validator

from headway.config import Frozen

Answer = TypeVar("Answer")


class Input(Frozen):
    """A reference to an output of another stage, or to a part of that output. The base class of the other references."""

    stage: str = Field(default="", description="whose output it is; empty: it is none of a store's stages")
    fingerprint: str = ""

    def as_key(self) -> object:
        """Returns the value that stands for this reference in the key of the reading stage: the output's fingerprint."""
        return self.fingerprint

    def paths(self) -> Sequence[Path]:
        """Returns the files and folders of the output that the stage reads; () when it reads no file."""
        return ()


class Ref(Input, Generic[Answer]):
    """A reference to a stage's output, or to a file or folder in it. Made from a bare path or answer, it names no output."""

    path: Path | None = Field(default=None, description="what is read of it; None: the answer alone")
    answer: Answer | None = None

    @model_validator(mode="before")
    @classmethod
    def _alone(cls, value: Any) -> Any:
        if isinstance(value, str | Path):
            return {"path": value}
        if isinstance(value, dict):
            return value if value.keys() <= cls.model_fields.keys() else {"answer": value}
        return value if value is None or isinstance(value, Ref) else {"answer": value}

    @classmethod
    def of(cls, answer: Answer) -> Ref[Answer]:
        """Returns a reference that holds an answer, and names no output in a store."""
        return cls(answer=answer)

    @property
    def value(self) -> Answer:
        """The answer of the stage whose output this is.

        Raises:
            ValueError: the reference was made without an answer.
        """
        if self.answer is None:
            raise ValueError(f"the reference to {self.stage or 'the stage'} has no answer: make it with answer=...")
        return self.answer

    @property
    def file(self) -> Path:
        """The path that is read; ValueError when the reference has none."""
        if self.path is None:
            raise ValueError(f"nothing of the {self.stage or 'stage'}'s output is read")
        return self.path

    def paths(self) -> Sequence[Path]:
        return () if self.path is None else (self.path,)


class Part(Input):
    """A reference to one split of one ingested span, such as the train rows of a month."""

    stage: str = "ingest"
    path: Path = Field(description="the ingest stage's output folder, or what is read of it")
    split: str = ""

    @model_validator(mode="before")
    @classmethod
    def _alone(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str | Path) else value

    def as_key(self) -> object:
        return [self.fingerprint, self.split]

    def paths(self) -> Sequence[Path]:
        return (self.path,)


class Examples(Part):
    """A reference to the records of one split of an ingested span. Its `paths` are the shards of that split."""

    result: dict[str, Any] = Field(description="what the ingest stage answered")

    def paths(self) -> Sequence[Path]:
        return [self.path / shard["file"] for shard in self.result["splits"].get(self.split, {}).get("shards", ())]
