"""`export:` of pipeline.yaml: what the SavedModel may cost a server.

ExportConfig(limits={"size_mb": 500}).limits.size_mb          # 500.0
"""

from pydantic import Field

from headway.config import Frozen


class ServingLimits(Frozen):
    """The limits on the cost of serving a model, measured on the machine that exports; null: no limit."""

    size_mb: float | None = Field(default=None, gt=0, description="the SavedModel's files, MB (10^6 bytes)")
    p99_ms: float | None = Field(default=None, gt=0, description="99% of the calls of one row take no longer, ms")


class ExportConfig(Frozen):
    """How the SavedModel is checked before it may be promoted."""

    limits: ServingLimits = Field(default_factory=ServingLimits, description="what the model may cost a server")
