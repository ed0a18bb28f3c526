"""Columns that the user computes from the raw ones; TensorFlow-free.

preprocess: features:preprocess               # the function in features.py beside the pipeline

preprocess:
  function: features:preprocess
  columns: {route: {hash: {buckets: 512}}, log_distance: standardize}
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field, field_validator, model_validator

from headway.config import Frozen
from headway.schema.columns import Column
from tfcore.transform.config import ColumnTransform


class PreprocessConfig(Frozen):
    """A function of the user's module, and what becomes of the columns that it gives."""

    function: str
    columns: dict[str, ColumnTransform] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"function": value} if isinstance(value, str) else value

    @field_validator("function")
    @classmethod
    def _module_and_function(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z_]\w*:[A-Za-z_]\w*", value):
            raise ValueError("write module:function, for the function in module.py beside the pipeline")
        return value

    @field_validator("columns", mode="before")
    @classmethod
    def _shorthand(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        fields = set(ColumnTransform.model_fields)

        def one(entry: Any) -> Any:
            if entry is None or (isinstance(entry, dict) and (not entry or set(entry) & fields)):
                return entry or {}
            return {"transform": entry} if isinstance(entry, str | list | dict) else entry

        return {name: one(entry) for name, entry in value.items()}


class DerivedParameters(Frozen):
    """What the function reads and gives, as its analysis found it."""

    function: str
    """module:function"""
    reads: tuple[Column, ...]
    columns: tuple[Column, ...]
