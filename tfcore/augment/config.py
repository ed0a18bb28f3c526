"""`augment:` of pipeline.yaml; TensorFlow-free.

AugmentConfig(flip="horizontal", crop=4)       # images
AugmentConfig(mixup=0.2)                       # images and tables
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from headway.config import Frozen, refuse_idle
from headway.errors import ConfigError


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
    mixup: float = Field(
        default=0.0, ge=0.0, le=8.0, description="alpha of the Beta distribution that two rows are averaged by; 0: off"
    )

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self == AugmentConfig.model_construct(padding=self.padding):
            raise ValueError("augment has no setting; leave it out, or give one: flip: horizontal, mixup: 0.2")
        if not self.crop:
            refuse_idle(self, ("padding",), "with a crop")
        return self

    def check(self, shortest: int | None) -> None:
        """Raise ConfigError for a setting that has no image to work on, or too small a one.

        Args:
            shortest: the least of the images' sides, in pixels; None: no input is an image.
        """
        for name, used in {"flip": self.flip != "none", "crop": self.crop > 0}.items():
            if used and shortest is None:
                fix = "give one {image: {height: 96, width: 96}}, or leave it out"
                raise ConfigError("no column is an image", where=f"training.augment.{name}", fix=fix)
        if self.padding == "reflect" and shortest is not None and self.crop >= shortest:
            raise ConfigError(
                f"{self.crop} pixels of padding cannot mirror an image whose shortest side has {shortest}",
                where="training.augment.crop",
                fix=f"say {shortest - 1} at most, or padding: constant",
            )
