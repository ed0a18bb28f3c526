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
    """Where a field stands in the key of its stage, and what of it; a field at its default is left out.

    Args:
        place: names from the outermost in; none: the field's own name.
        of: what of the value enters; by default all of it, of a reference its fingerprint.
        always: the field is in the key even at its default. Only fields that a stage had from its first version are.
        spread: the value is a mapping whose entries stand at `place` themselves.
    """

    def __init__(
        self, *place: str, of: Callable[[Any], object] | None = None, always: bool = False, spread: bool = False
    ):
        self.place, self.of, self.always, self.spread = place, of, always, spread


class Stage(Frozen, Generic[Answer]):
    """One unit of work: its inputs and its config are fields."""

    name: ClassVar[str]
    version: ClassVar[int]
    """Raised by whoever changes what the stage writes for the same fields."""
    runs: ClassVar[str]
    """"module:function"."""
    runs_many: ClassVar[str | None] = None
    """"module:function" that runs several as one: function(requests, outs, monitor) -> answers."""
    prepares: ClassVar[str | None] = None
    """"module:function" that does part of the work ahead in the process of the stage: function(request)."""
    delivers: ClassVar[bool] = False
    """Its workers write to a store in a bucket themselves: the function takes `places`, the folders there; and an answer has
    the entries of the files that are there under "files". Of a store in a folder it goes on with what a killed process left."""
    tensorflow: ClassVar[bool] = False
    """Runs in the TensorFlow process."""
    streams: ClassVar[bool] = False
    """Fetches the shards of a store in a bucket as it reads them: the function takes `remote`."""

    @property
    def own_process(self) -> bool:
        """Whether nothing else may run in its process, before it or after it."""
        return False

    @classmethod
    def answers(cls) -> type[Answer]:
        """The model of its answer."""
        for base in cls.__mro__:
            arguments = getattr(base, "__pydantic_generic_metadata__", {}).get("args")
            if arguments:
                answer: type[Answer] = arguments[0]
                return answer
        raise TypeError(f"{cls.__name__} does not say what it answers: class {cls.__name__}(Stage[...])")

    def key(self) -> dict[str, Any]:
        """What the output depends on, as small JSON."""
        key: dict[str, Any] = {"stage": self.name, "version": self.version}
        for name, field in type(self).model_fields.items():
            how, value = next((each for each in field.metadata if isinstance(each, Key)), None), getattr(self, name)
            if how is None:
                continue
            if not (how.always or field.is_required()) and value == field.get_default(call_default_factory=True):
                continue
            part, into = plain(value if how.of is None else how.of(value)), key
            place = how.place if how.place or how.spread else (name,)
            for each in place if how.spread else place[:-1]:
                into = into.setdefault(each, {})
            into.update(part if how.spread else {place[-1]: part})
        return key

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.key())

    def inputs(self) -> list[Input]:
        """The references to outputs that it reads, in the order of its fields."""
        return list(_inputs(self))

    def paths(self) -> list[Path]:
        """What it reads of other outputs."""
        return [path for ref in self.inputs() for path in ref.paths()]

    @property
    def input_bytes(self) -> int:
        """The bytes that it reads from outside of the store, by which stages are run as one or in turn."""
        return 0

    def kept(self) -> Path | None:
        """The folder of what it keeps while it runs, so that one that was killed goes on from there; None: it begins anew."""
        return None


def run(stage: Stage[Answer], out: Path | str, monitor: Monitor | None = None) -> Answer:
    """Run one stage alone, in this process and without a store.

    Args:
        out: a folder for what it writes; made if need be.

    Raises:
        HeadwayError: as the stage raises.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    return stage.answers().model_validate(resolve_name(stage.runs)(stage, folder, monitor or Monitor()))


def plain(value: Any) -> Any:
    """A value as the JSON of a key."""
    if (as_key := getattr(value, "as_key", None)) is not None:
        return plain(as_key())
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
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
