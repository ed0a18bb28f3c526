"""The request of the stage that analyses a preprocess function. Imports no TensorFlow."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from headway.config import Result
from headway.schema.columns import Column
from headway.stages.refs import Examples
from headway.stages.stage_class import Key, Stage
from headway.user_code.files import digest

VERSION = 1
"""The version of the stage, to be raised when the stage writes something else for the same request."""


class Analysed(Result):
    """The result of the stage: the columns that a preprocess function returns, and the raw columns that it reads."""

    columns: tuple[Column, ...] = ()
    reads: tuple[Column, ...] = ()


class AnalyseRequest(Stage[Analysed]):
    """The request of the stage: the train split, and the preprocess function to analyse on it."""

    name, version, runs, tensorflow, streams = "analyse", VERSION, "tfcore.preprocess.stage:analyse", True, True
    function: Annotated[str, Key("config", "function")] = Field(description="module:function")
    file: Annotated[Path, Key("module", of=digest)]
    examples: Annotated[tuple[Examples, ...], Key("inputs", "examples")] = Field(min_length=1)
