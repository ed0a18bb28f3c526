"""Stages as classes of fields: what a stage reads, what its output depends on, and what it answers.

from headway.stages import run

found = run(StatisticsRequest(columns=columns, splits={"train": ["spans/2013-01"]}), "out")
found.rows["train"]
"""

from headway.stages.refs import Examples, Part, Ref
from headway.stages.stage_class import Key, Stage, run

__all__ = ["Examples", "Key", "Part", "Ref", "Stage", "run"]
