"""`model:` of pipeline.yaml; TensorFlow-free.

ModelConfig(name="mlp", hidden=(64, 32), dropout=0.1)
ModelConfig(name="my_models:two_towers", options={"width": 32})
"""

import difflib
import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from headway.config import Frozen

BUILT_IN = ("ensemble", "mlp", "two_towers")
BINS = 48
"""The bins over which `ensemble` embeds each number."""
DECAYS = (0.2, 2.0, 8.0, 64.0)
"""The weight decays that members of `ensemble` try: the share that a weight loses in a step is the learning rate times
the decay. The last one leaves little but the linear part."""
FOLDS = 2
"""The number of members with the same decay, which leave out different rows while the decay is chosen."""
MEMBERS = FOLDS * len(DECAYS)
CHOOSING = 0.5
"""The share of the steps after which the decay is chosen, and all members learn from all rows."""
Penalty = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
_ONLY: dict[str, tuple[str, ...]] = {"l2": ("mlp", "two_towers"), "linear_l2": ("two_towers",), "item": ("two_towers",)}
"""The built-in models that have a key, for keys that not all of them have."""


class ModelConfig(Frozen):
    """A built-in model by name, or `module:function` of a Python file beside the pipeline."""

    name: str = Field(
        default="ensemble",
        description="ensemble, mlp, two_towers, or module:function of a file beside the pipeline",
    )
    hidden: tuple[int, ...] = Field(default=(100, 70, 50, 25), description="units of the hidden layers")
    embedding: int = Field(
        default=8, ge=1, le=4096, description="width of the embeddings of a category and, in ensemble, of a number"
    )
    dropout: float = Field(default=0.0, ge=0.0, lt=1.0, description="share of hidden units dropped in training")
    images: Literal["conv", "resnet"] = Field(
        default="conv", description="the net for images: a small convolutional one, or a residual one"
    )
    l2: Penalty = Field(
        default=0.0, description="mlp, two_towers: added to the loss: l2 / 2 * the squared weights of the layers"
    )
    linear_l2: Penalty = Field(default=0.0, description="two_towers: the same for the weights of the biases")
    item: tuple[str, ...] = Field(
        default=(), description="two_towers: the columns of the item; all others are the user's, or the query's"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="passed to your model function")

    @field_validator("name")
    @classmethod
    def _model_name(cls, value: str) -> str:
        if value in BUILT_IN or re.fullmatch(r"[A-Za-z_]\w*:[A-Za-z_]\w*", value):
            return value
        if close := difflib.get_close_matches(value, BUILT_IN, 1):
            raise ValueError(f"there is no model {value!r}; did you mean {close[0]!r}?")
        raise ValueError(f"is not a model: use {', '.join(BUILT_IN)}, or module:function")

    @field_validator("hidden")
    @classmethod
    def _positive(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(not 1 <= units <= 65_536 for units in value):
            raise ValueError("units of a layer must be between 1 and 65536")
        return value

    @model_validator(mode="after")
    def _fits_its_name(self) -> Self:
        if self.user_defined:
            # compared with the defaults, not with what was written down: a dumped config has every field
            for field in type(self).model_fields.keys() - {"name", "options"}:
                if getattr(self, field) != default_of(field):
                    raise ValueError(f"{field}: {self.name} is not given it; put it under options")
            return self
        for field, names in _ONLY.items():
            if self.name not in names and getattr(self, field) != default_of(field):
                raise ValueError(f"{field}: only {' and '.join(names)} {'has' if len(names) == 1 else 'have'} it")
        if self.name == "two_towers" and not self.item:
            raise ValueError("item: two_towers needs the columns of the item, such as item: [movie_id, genres]")
        if self.name == "two_towers" and self.dropout:
            raise ValueError("dropout: two_towers does not have it")
        if self.options:
            raise ValueError(f"options: only a user's function takes them, not {self.name}")
        return self

    @property
    def bins(self) -> int:
        """The number of bins that the transform fits for each numeric column; 0: the model needs none."""
        return BINS if self.name == "ensemble" else 0

    @property
    def user_defined(self) -> bool:
        return ":" in self.name


def default_of(field: str) -> Any:
    """Returns the default value of a field of `ModelConfig`."""
    return ModelConfig.model_fields[field].default
