"""The base class of stages: a stage is a class of fields, and its fingerprint is derived from them.

    class TrainRequest(Stage[Trained]):
        name, version, runs = "train", 5, "tfcore.train.stage:train"
        transform: Annotated[Ref[TransformParameters], Key("inputs", "transform")]
        seed: Annotated[int, Key("config", "seed", always=True)] = 0
        checkpoints: Path | None = None                 # no Key: it changes how the stage runs, not what it writes

    request.fingerprint                   # equal fingerprint = same output = nothing to do
    request.inputs()                      # the references to other outputs

The function is called as function(request, out, monitor) and returns its answer as JSON; it is imported only to run.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel

from headway.config import Frozen
from headway.monitor import Monitor
from headway.stages.refs import Input
from headway.storage.fingerprint import fingerprint

Answer = TypeVar("Answer", bound=BaseModel)


class Key:
    """Marks a field as part of its stage's key, and says where in the key. A field that has its default value is left out.

    Args:
        place: the names that lead to the value in the key, outermost first; by default the field's own name.
        of: returns the part of the value that enters the key; by default all of it, or a reference's fingerprint.
        always: the field is in the key even at its default value; only for fields that a stage had from its first version.
        spread: the value is a mapping, and its entries are put directly at `place`.
    """

    def __init__(
        self, *place: str, of: Callable[[Any], object] | None = None, always: bool = False, spread: bool = False
    ):
        self.place, self.of, self.always, self.spread = place, of, always, spread


class Stage(Frozen, Generic[Answer]):
    """The base class of stages: a stage's inputs and config are its fields."""

    name: ClassVar[str]
    version: ClassVar[int]
    """The version of the stage's code. It is raised when the stage starts to write something else for the same fields."""
    runs: ClassVar[str]
    """The function of the stage, as "module:function"."""
    runs_many: ClassVar[str | None] = None
    """The function that runs several requests at once, as "module:function"; None: each request runs alone. It is called as
    function(requests, outs, monitor), and returns the answers."""
    delivers: ClassVar[bool] = False
    """Whether the stage's workers upload to a store in a bucket themselves. The function then takes `places`, the addresses
    of folders in the bucket. Its answer has the manifest entries of the files there under "files". In a store on a disk,
    such a stage resumes the unfinished output of a killed process."""
    tensorflow: ClassVar[bool] = False
    """Whether the stage runs in the TensorFlow process."""
    streams: ClassVar[bool] = False
    """Whether the stage fetches a bucket's shards itself, while it reads. Its function then takes `remote`, the files."""

    @property
    def own_process(self) -> bool:
        """Returns whether the stage needs a new process for itself, which ends with the stage."""
        return False

    @classmethod
    def answers(cls) -> type[Answer]:
        """Returns the class of the stage's answer, a pydantic model."""
        for base in cls.__mro__:
            arguments = getattr(base, "__pydantic_generic_metadata__", {}).get("args")
            if arguments:
                answer: type[Answer] = arguments[0]
                return answer
        raise TypeError(f"{cls.__name__} does not say what it answers: class {cls.__name__}(Stage[...])")

    def key(self) -> dict[str, Any]:
        """Returns what the stage's output depends on, as JSON values: name, version and the fields with a `Key`."""
        key: dict[str, Any] = {"stage": self.name, "version": self.version}
        for name, field in type(self).model_fields.items():
            how, value = next((each for each in field.metadata if isinstance(each, Key)), None), getattr(self, name)
            if how is None:
                continue
            if not (how.always or field.is_required()) and value == field.get_default(call_default_factory=True):
                continue
            part, into = json_value(value if how.of is None else how.of(value)), key
            place = how.place if how.place or how.spread else (name,)
            for each in place if how.spread else place[:-1]:
                into = into.setdefault(each, {})
            into.update(part if how.spread else {place[-1]: part})
        return key

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.key())

    def inputs(self) -> list[Input]:
        """Returns the references to outputs that the stage reads, in the order of its fields."""
        return list(_inputs(self))

    def input_paths(self) -> list[Path]:
        """Returns the files and folders of other outputs that the stage reads."""
        return [path for ref in self.inputs() for path in ref.paths()]

    @property
    def input_bytes(self) -> int:
        """Returns the bytes that the stage reads from outside the store. Their sum limits how many requests run at once."""
        return 0

    def progress_folder(self) -> Path | None:
        """Returns the folder in which the stage saves its progress. After it was killed, the stage resumes from there. None:
        it starts again from the beginning."""
        return None


def run(stage: Stage[Answer], out: Path | str, monitor: Monitor | None = None) -> Answer:
    """Run one stage alone, in this process and without a store.

    Args:
        out: the folder to which the stage writes; made if need be.

    Raises:
        HeadwayError: whatever the stage itself raises.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    return stage.answers().model_validate(resolve_name(stage.runs)(stage, folder, monitor or Monitor()))


def json_value(value: Any) -> Any:
    """Returns a field's value as JSON values, in the form for a key. A reference becomes the result of its `as_key`."""
    if (as_key := getattr(value, "as_key", None)) is not None:
        return json_value(as_key())
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(name): json_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(each) for each in value]
    return value


def _inputs(value: object) -> Iterator[Input]:
    if isinstance(value, Input):
        yield value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _inputs(getattr(value, name))
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _inputs(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _inputs(each)
