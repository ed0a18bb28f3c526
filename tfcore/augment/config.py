"""`augment:` of pipeline.yaml; TensorFlow-free.

AugmentConfig(flip="horizontal", crop=4, brightness=0.2, cutout=8)       # images
AugmentConfig(feature_dropout=0.1, noise=0.05)                           # tables
AugmentConfig(mixup=0.2)                                                 # both
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from headway.config import Frozen
from headway.errors import ConfigError

Strength = Annotated[float, Field(ge=0.0, le=1.0)]
IMAGE = ("flip", "crop", "brightness", "contrast", "saturation", "hue", "cutout")
"""The settings that need an image."""


class AugmentConfig(Frozen):
    """The augmentation of training rows; evaluation, replay and the exported model never apply it."""

    flip: Literal["none", "horizontal", "vertical", "both"] = Field(
        default="none", description="mirror an image with probability a half, in each direction named"
    )
    crop: int = Field(
        default=0, ge=0, le=1024, description="pixels of padding on each side, then a crop of the old size"
    )
    padding: Literal["constant", "reflect"] = Field(
        default="constant", description="pad with black, or with mirrored pixels"
    )
    brightness: Strength = Field(default=0.0, description="added to all pixels: up to this share of 255, either way")
    contrast: Strength = Field(default=0.0, description="multiply the distance from an image's mean by 1 - c to 1 + c")
    saturation: Strength = Field(default=0.0, description="multiply the distance from grey by 1 - s to 1 + s")
    hue: Annotated[float, Field(ge=0.0, le=0.5)] = Field(
        default=0.0, description="rotate the colours by up to this share of a turn, either way"
    )
    cutout: int = Field(default=0, ge=0, le=4096, description="side in pixels of a black square, placed anywhere")
    mixup: float = Field(
        default=0.0, ge=0.0, le=8.0, description="alpha of the Beta distribution that two rows are averaged by; 0: off"
    )
    feature_dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = Field(
        default=0.0, description="probability that a row's column is shown as missing"
    )
    noise: float = Field(
        default=0.0, ge=0.0, allow_inf_nan=False, description="deviation of the normal noise on transformed numbers"
    )

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self == AugmentConfig.model_construct(padding=self.padding):
            raise ValueError("augment has no setting; leave it out, or give one: flip: horizontal, noise: 0.05")
        return self

    def check(self, *, images: int, colours: int, shortest: int, numeric: int, categorical: int) -> None:
        """Raise ConfigError for a setting that has no input to work on, such as `flip` without an image.

        Args:
            images: inputs that are images, `colours` of them with three channels.
            shortest: the least of their sides, in pixels.
            numeric: numbers in a row.
            categorical: ids in a row.

        Raises:
            ConfigError: naming the setting.
        """
        default = AugmentConfig.model_construct()
        for name in IMAGE:
            if getattr(self, name) == getattr(default, name):
                continue
            if not images:
                raise _lacks(
                    name, "no column is an image", "give one {image: {height: 96, width: 96}}, or leave it out"
                )
            if name in ("saturation", "hue") and not colours:
                raise _lacks(name, "no image column has 3 channels", "read it with channels: 3, or leave it out")
        if self.crop >= shortest and self.crop and self.padding == "reflect":
            problem = f"{self.crop} pixels of padding cannot mirror an image whose shortest side has {shortest}"
            raise _lacks("crop", problem, f"say {shortest - 1} at most, or padding: constant")
        if self.noise and not numeric:
            raise _lacks("noise", "the model has no numeric input", "leave it out, or use feature_dropout")
        if self.feature_dropout and not numeric + categorical:
            raise _lacks("feature_dropout", "there are no columns besides images", "use cutout for images")


def _lacks(name: str, problem: str, fix: str) -> ConfigError:
    return ConfigError(problem, where=f"training.augment.{name}", fix=fix)
