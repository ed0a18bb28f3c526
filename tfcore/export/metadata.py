"""The metadata of a SavedModel, read without TensorFlow: raw columns, task, classes.

    described = describe_model(Path("store/models/flights/3/saved_model"))
    described.columns, described.task, described.classes

The file `assets.extra/columns.json` of the model's folder holds it. Whoever has the folder can turn raw rows into model inputs.
"""

from pathlib import Path

from pydantic import Field, ValidationError

from headway.config import Frozen
from headway.errors import StoreError
from headway.schema.columns import Column
from headway.tasks.table import TaskName

FILE = Path("assets.extra") / "columns.json"


class ModelMetadata(Frozen):
    columns: tuple[Column, ...]
    """The raw columns. Values are coerced to the columns' types before the model gets them."""
    task: TaskName
    inputs: dict[str, str] = Field(default_factory=dict)
    """{column: the name of its tensor in the signatures}, only for columns whose tensor has another name."""
    classes: tuple[str | int, ...] = ()
    """The label's classes, in the order of the model's probabilities; empty where it has none."""


def write_description(saved_model: Path, described: ModelMetadata) -> None:
    path = saved_model / FILE
    path.parent.mkdir(exist_ok=True)
    path.write_text(described.model_dump_json(indent=1) + "\n", encoding="utf-8")


def describe_model(saved_model: Path) -> ModelMetadata:
    """Returns the metadata of the model in a folder: its columns, task and classes.

    Raises:
        StoreError: the folder holds no SavedModel, or no valid description of the model's columns.
    """
    if not (saved_model / "saved_model.pb").is_file():
        raise StoreError("is not a SavedModel", where=str(saved_model), fix="name the folder that holds saved_model.pb")
    path = saved_model / FILE
    try:
        return ModelMetadata.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        problem = f"the model does not say which columns it takes: it has no {FILE}"
        raise StoreError(problem, where=str(saved_model), fix="train and export one with this Headway") from None
    except ValidationError as error:
        problem = f"is damaged: {error.errors()[0]['msg']}"
        raise StoreError(problem, where=str(path), fix="export the model again") from None
