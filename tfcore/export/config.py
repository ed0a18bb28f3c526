"""`export:` of pipeline.yaml: how the SavedModel is checked, and what is written beside it.

ExportConfig(formats="tflite").formats          # ("tflite",)
"""

from importlib.util import find_spec
from typing import Any

from pydantic import Field, field_validator

from headway.config import Frozen
from headway.errors import ConfigError
from headway.schema.columns import suggest
from tfcore.export.metadata import FORMATS, NEEDED, Format


class ServingLimits(Frozen):
    """The limits on the cost of serving a model, measured on the machine that exports; null: no limit."""

    size_mb: float | None = Field(default=None, gt=0, description="the SavedModel's files, MB (10^6 bytes)")
    p99_ms: float | None = Field(default=None, gt=0, description="99% of the calls of one row take no longer, ms")


class ExportConfig(Frozen):
    """How the SavedModel is checked before it may be promoted, and what is written beside it."""

    limits: ServingLimits = Field(default_factory=ServingLimits, description="what the model may cost a server")
    formats: tuple[Format, ...] = Field(
        default=(),
        description="further formats of the model behind the transform, which are compared with the SavedModel",
    )

    @field_validator("formats", mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        names = [value] if isinstance(value, str) else value
        for name in names if isinstance(names, list | tuple) else ():
            if name == "tflite_bfloat16":
                raise ValueError(f"{name!r} is not written: the converter keeps weights of 32 bits; use tflite_float16")
            if name not in FORMATS:
                raise ValueError(f"{name!r} is not a format; {suggest(str(name), [*FORMATS])}")
        return tuple(dict.fromkeys(names)) if isinstance(names, list | tuple) else names

    def check_installed(self, where: str) -> None:
        """Check that the converters are here; only a run that exports needs them, so that a server can do without.

        Raises:
            ConfigError: one is missing.
        """
        for name in self.formats:
            if missing := [package for package in NEEDED.get(name, ()) if find_spec(package) is None]:
                problem = f"{name} needs {' and '.join(missing)}"
                raise ConfigError(problem, where=f"{where}: export.formats", fix="pip install 'headway[onnx]'")
