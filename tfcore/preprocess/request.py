"""The request of the stage that analyses a preprocess function; TensorFlow-free."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from headway.config import Frozen
from tfcore.data.examples import Examples

VERSION = 1
"""Raised by whoever changes what the stage writes for the same request."""


class AnalyseRequest(Frozen):
    """The train split, and the preprocess function to analyse on it."""

    examples: tuple[Examples, ...] = Field(min_length=1)
    file: Path
    function: str = Field(description="module:function")
