"""`model:` of pipeline.yaml; TensorFlow-free.

ModelConfig(name="mlp", hidden=(64, 32), dropout=0.1)
ModelConfig(name="my_models:two_towers", options={"width": 32})
"""

import difflib
import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from headway.config import Frozen

BUILT_IN = ("mlp", "wide_deep", "stacked", "two_towers")
STACKED_BINS = 48
DECAYS = (0.3, 1.0, 3.0, 30.0)
"""The decays of `stacked`: what a weight loses in a step, times the learning rate. The last one leaves little but the
linear part."""
FOLDS = 2
"""The members of `stacked` with one decay, which leave out different rows."""
STACKED = FOLDS * len(DECAYS)
VALUE_L1 = {False: 2.4, True: 0.6}
"""The automatic `value_l1` times the square root of the rows, without classes and with them: 1.2 times the slope that a
category of pure noise has."""
Penalty = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class ModelConfig(Frozen):
    """A built-in model by name, or `module:function` of a Python file beside the pipeline."""

    name: str = Field(
        default="mlp",
        description="mlp, wide_deep, stacked, two_towers, or module:function of a file beside the pipeline",
    )
    hidden: tuple[int, ...] = Field(default=(100, 70, 50, 25), description="units of the hidden layers")
    embedding: int = Field(default=8, ge=1, le=4096, description="width of every categorical column's embedding")
    dropout: float = Field(default=0.0, ge=0.0, lt=1.0, description="share of hidden units dropped in training")
    images: Literal["conv", "resnet"] = Field(
        default="conv", description="the net for images: a small convolutional one, or a residual one"
    )
    base_rate_bias: bool = Field(
        default=True, description="start the output at the label's base rate in the train split, not at one half"
    )
    linear: bool = Field(
        default=False,
        description="add a linear part, a linear model of all inputs, to the output; the hidden layers' part starts at zero",
    )
    soft_clip: Penalty = Field(
        default=0.0,
        description="hidden layers see numbers as x / sqrt(1 + (x / soft_clip)^2), within +-soft_clip; 0: unchanged",
    )
    l2: Penalty = Field(default=0.0, description="added to the loss: l2 / 2 * the squared weights of the hidden layers")
    linear_l2: Penalty = Field(default=0.0, description="the same for the weights of the linear part")
    linear_l1: Penalty = Field(
        default=0.0,
        description="a penalty: linear_l1 times the absolute weights of the linear part's numbers, and the length of all "
        "weights of each of its categorical columns; the least useful become 0",
    )
    recurring: bool | None = Field(
        default=None,
        description="the linear part sees numbers whose values recur as categories too; null: those of stacked",
    )
    value_l1: Penalty = Field(
        default=0.0,
        description="linear_l1 of the categories alone that are a number's values; the hidden layers do not see them then",
    )
    scaled_penalties: bool = Field(
        default=False,
        description="the penalties count times the share of the label's variance that is not explained yet; for a regression "
        "of one label with the squared error",
    )
    most_ids: int | None = Field(
        default=None,
        ge=1,
        description="hidden layers see only categorical columns with at most this many ids; a linear part sees all; "
        "default: no limit",
    )
    bins: int | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="hidden layers see piecewise linear embeddings of numbers, over so many quantile bins of the train rows; "
        "0: the numbers; null: 48 for stacked, 0 for others",
    )
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
        if self.item and self.name in BUILT_IN and self.name != "two_towers":
            raise ValueError(f"item: only two_towers has it, not {self.name}")
        if self.most_ids is not None and not (self.linear or self.name == "wide_deep" or self.user_defined):
            raise ValueError(
                "most_ids: without a linear part no part of the model would see the other columns; set linear: true"
            )
        if self.name == "two_towers":
            if not self.item:
                raise ValueError("item: two_towers needs the columns of the item, such as item: [movie_id, genres]")
            for field in ("linear", "linear_l1", "recurring", "value_l1", "soft_clip", "most_ids", "bins", "dropout"):
                if getattr(self, field) != default_of(field):
                    raise ValueError(f"{field}: two_towers does not have it")
        if self.name == "stacked" and not self.hidden:
            raise ValueError("hidden: the members of stacked are told apart by hidden layers; give it one or more")
        if self.name == "stacked" and self.l2:
            raise ValueError("l2: the members of stacked decay their weights instead")
        if self.name in BUILT_IN and self.options:
            raise ValueError(f"options: only a user's function takes them, not {self.name}")
        if self.user_defined:
            # compared with the defaults, not with what was written down: a dumped config has every field
            for field in type(self).model_fields.keys() - {"name", "options"}:
                if getattr(self, field) != default_of(field):
                    raise ValueError(f"{field}: {self.name} is not given it; put it under options")
        return self

    @property
    def quantile_bins(self) -> int:
        """The number of bins of the numbers' embeddings; 0: hidden layers see the numbers."""
        if self.bins is not None:
            return self.bins
        return STACKED_BINS if self.name == "stacked" else 0

    @property
    def recurring_numbers(self) -> bool:
        """Whether numbers whose values recur are categories of the linear part too; hidden layers would learn their
        noise."""
        wanted = self.name == "stacked" if self.recurring is None else self.recurring
        return wanted and (self.linear or "linear" not in self.model_fields_set)

    @property
    def user_defined(self) -> bool:
        return ":" in self.name


def default_of(field: str) -> Any:
    """Returns the default of one of the config's fields."""
    return ModelConfig.model_fields[field].default
