"""One split of one ingested span, as requests of stages name it; TensorFlow-free."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from headway.config import Frozen


class Examples(Frozen):
    """One split of one ingested span."""

    path: Path = Field(description="the ingest stage's output folder")
    split: str
    result: dict[str, Any] = Field(description="what the ingest stage answered")
