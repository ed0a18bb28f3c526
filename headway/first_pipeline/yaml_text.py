"""The text of pipeline.yaml for a draft: what differs from the defaults, and comments that say why.

text = pipeline_text(draft, path="wine.csv")
"""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from headway.first_pipeline.draft import Draft
from headway.messages import counted, some
from headway.sources.config import DATE_PARTS, SPAN

_PLAIN = re.compile(r"[A-Za-z_][\w .>=<+*/()-]*", re.ASCII)
_COMMENT_AT = 34
_LONG, _WIDEST = 100, 120
_NAMED = 6
"""The most columns left out by auto that a comment names; it counts the others."""
_TASK_REASONS = {
    "count": "whole numbers from 0 up, most of them small",
    "multiclass": "few different numbers: classes",
    "regression": "whole numbers with few rows each: a quantity rather than classes",
}
_WINDOW = "# window: 12                       # the last 12 spans, or a time such as 12m; without it, all spans"


def pipeline_text(draft: Draft, *, path: str) -> str:
    """Returns the text of pipeline.yaml, without what the defaults say already.

    Args:
        path: the path of the data as it stands in the file, relative to the file's folder.
    """
    source = {"format": draft.source["format"], "path": path} | {
        key: value for key, value in draft.source.items() if key not in ("format", "path")
    }
    line = f"source: {flow_yaml(source)}"
    drafted = f"Drafted by headway init from {counted(draft.rows, 'row')}{'' if draft.whole else ', not all of them'}. "
    lines = [
        _comment(drafted + "What is not here has its default: 'headway schema' prints every key."),
        f"name: {draft.name}",
        *(
            [line]
            if len(line) <= _LONG
            else ["source:", *(f"  {scalar(key)}: {flow_yaml(of)}" for key, of in source.items())]
        ),
        *([_WINDOW] if SPAN in path or DATE_PARTS[0] in path else []),
        _commented(f"label: {_label(draft)}", draft.facts.text),
    ]
    if draft.facts.task is not None:
        lines.append(_commented(f"task: {draft.facts.task}", _TASK_REASONS[draft.facts.task]))
    lines += _columns(draft)
    if draft.split.config:
        lines.append(_commented(f"split: {flow_yaml(draft.split.config)}", draft.split.text))
    else:
        lines.append(_comment(f"split: {draft.split.text}"))
    if draft.source["format"] == "images":
        lines.append(_commented("evaluation: {row_values: [path]}", "the images on which the model is most wrong"))
    return "\n".join(lines) + "\n"


def _label(draft: Draft) -> str:
    """Returns the label as YAML. A column whose name could be read as an expression is written as {column: NAME}."""
    column = draft.label.column
    if column is not None and not column.isidentifier():
        return f"{{column: {scalar(column)}}}"
    return scalar(column or draft.label.expression)


def scalar(value: Any) -> str:
    """Returns a value as one line of YAML, in quotes if YAML would read the bare text as something else."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and yaml.safe_load(f"[{value}]") == [value]:
        return value
    style = '"' if isinstance(value, str) else None
    text = yaml.safe_dump(value, default_style=style, allow_unicode=True, width=1 << 30)
    return str(text).removesuffix("\n").removesuffix("...").strip()


def flow_yaml(value: Any) -> str:
    """Returns a value as one line of YAML in flow style: mappings in braces, lists in brackets."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(key)}: {flow_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow_yaml, value)) + "]"
    return scalar(value)


def _columns(draft: Draft) -> list[str]:
    """Returns the lines of the section `columns:`, and a comment that lists the columns that a run leaves out by itself."""
    reasons = {choice.column: choice.why for choice in draft.choices}
    by_auto = [choice.column for choice in draft.choices if choice.by_auto]
    said = {name: config for name, config in draft.columns.items() if name not in by_auto}
    lines = [_comment(f"left out as they tell nothing of a row: {some(by_auto, _NAMED)}")] if by_auto else []
    if not said:
        return lines
    lines += ["columns:", *([] if draft.only else ['  "*": auto'])]
    return lines + [_commented(f"  {scalar(name)}: {flow_yaml(of)}", reasons[name]) for name, of in said.items()]


def _comment(text: str) -> str:
    return "# " + _one_line(text)


def _commented(line: str, text: str) -> str:
    """Returns a line with a comment at its end, or on the line before it if both are too long for one line."""
    if not text:
        return line
    both = f"{line.ljust(_COMMENT_AT)} # {_one_line(text)}"
    indent = line[: len(line) - len(line.lstrip())]
    return both if len(both) <= _WIDEST else f"{indent}# {_one_line(text)}\n{line}"


def _one_line(text: str) -> str:
    """Returns the text with a blank for each character that is not printable: YAML allows no control characters in a comment."""
    return "".join(c if c.isprintable() else " " for c in text)
