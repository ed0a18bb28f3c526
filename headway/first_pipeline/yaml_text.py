"""The text of pipeline.yaml for a draft: what differs from the defaults, and comments that say why.

text = pipeline_text(draft, path="wine.csv")
"""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from headway.first_pipeline.draft import Draft
from headway.messages import counted
from headway.sources.config import DATE_PARTS, SPAN

_PLAIN = re.compile(r"[A-Za-z_][\w .>=<+*/()-]*", re.ASCII)
_COMMENT_AT = 34
_LONG, _WIDEST = 100, 120
_NAMED = 24
"""Columns that auto leaves out by itself are named up to this many."""
_TASK_REASONS = {
    "count": "whole numbers from 0 up, most of them small",
    "multiclass": "few different numbers: classes",
    "regression": "whole numbers with few rows each: a quantity rather than classes",
}
_WINDOW = "# window: 12                       # the last 12 spans, or a time such as 12m; without it, all spans"


def pipeline_text(draft: Draft, *, path: str, module: str | None = None) -> str:
    """The text of pipeline.yaml.

    Args:
        path: of the data, as the file says it: relative to its folder, or absolute.
        module: model, loss, metric or preprocess: what the Python file beside it holds.
    """
    source = {"format": draft.source["format"], "path": path} | {
        key: value for key, value in draft.source.items() if key not in ("format", "path")
    }
    drafted = f"Drafted by headway init from {counted(draft.rows, 'row')}"
    drafted += "." if draft.whole else ", of which some were looked at."
    lines = [
        _comment(drafted),
        "# What is not here has its default; 'headway schema' prints every key.",
        f"name: {draft.name}",
        "",
        *([line] if len(line := f"source: {flow(source)}") <= _LONG else _nested("source", source)),
        *([_WINDOW] if SPAN in path or DATE_PARTS[0] in path else []),
        "",
        _commented(f"label: {scalar(draft.label.column or draft.label.expression)}", draft.facts.text),
    ]
    if draft.label.column is not None and not draft.label.column.isidentifier():
        lines[-1] = _commented(f"label: {{column: {scalar(draft.label.column)}}}", draft.facts.text)
    if draft.facts.task is not None:
        lines.append(_commented(f"task: {draft.facts.task}", _TASK_REASONS[draft.facts.task]))
    lines += ["", *_columns(draft), ""]
    if draft.preprocess:
        lines += [*_nested("preprocess", draft.preprocess), ""]
    if draft.split.config:
        lines.append(_commented(f"split: {flow(draft.split.config)}", draft.split.text))
    else:
        lines.append(_comment(f"split: {draft.split.text}"))
    if draft.model and module != "model":
        why = "words: hidden layers see them too, penalties are small"
        if "recurring" in draft.model:
            why = "numbers whose values recur are also categories, integers of few values also numbers"
        lines.append(_commented(f"model: {flow(draft.model)}", why))
    if module == "model":
        lines.append('model: {name: "model:build"}       # build in model.py')
    if module == "metric":
        lines.append(
            'evaluation: {metrics: {"metric:cost": lower}}     # cost in metric.py; gate.tolerance lets it block a model'
        )
    if draft.facts.outliers:
        lines.append(
            _commented("gate: {primary: mae}", "a squared error would be that of a few rows far off the others")
        )
    if module == "loss":
        lines.append(
            'training: {loss: "model:loss"}     # loss in model.py; all else of training by the number of train rows'
        )
    else:
        training = "training: {loss: absolute_error}" if draft.facts.outliers else "training: auto"
        lines.append(_commented(training, "steps, batch size, learning rate by the number of train rows"))
    return "\n".join(lines) + "\n"


def scalar(value: Any) -> str:
    """A value as YAML on one line that means just this value."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and _means(value, value):
        return value
    style = '"' if isinstance(value, str) else None
    text = yaml.safe_dump(value, default_style=style, allow_unicode=True, width=1 << 30)
    return str(text).removesuffix("\n").removesuffix("...").strip()


def flow(value: Any) -> str:
    """A value as YAML on one line, mappings and lists in braces."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    return scalar(value)


def _means(text: str, value: str) -> bool:
    try:
        return yaml.safe_load(f"[{text}]") == [value] and yaml.safe_load(f"k: {text}") == {"k": value}
    except yaml.YAMLError:
        return False


def _nested(key: str, value: Mapping[str, Any]) -> list[str]:
    """A mapping with a line for each entry of its mappings."""
    lines = [f"{key}:"]
    for name, item in value.items():
        if isinstance(item, Mapping) and item:
            lines += [f"  {scalar(name)}:", *(f"    {scalar(inner)}: {flow(of)}" for inner, of in item.items())]
        else:
            lines.append(f"  {scalar(name)}: {flow(item)}")
    return lines


def _columns(draft: Draft) -> list[str]:
    by_name = {choice.column: choice for choice in draft.choices}
    if draft.only:
        only = draft.columns.items()
        return ["columns:", *(_commented(f"  {scalar(name)}: {flow(of)}", by_name[name].why) for name, of in only)]
    said = {name: config for name, config in draft.columns.items() if not by_name[name].by_auto}
    left = [choice for choice in draft.choices if choice.by_auto]
    lines = []
    for choice in left[:_NAMED]:
        named = choice.column if _PLAIN.fullmatch(choice.column) else repr(choice.column)
        lines.append(_comment(f"{named}: {choice.why}; auto leaves it out"))
    if len(left) > _NAMED:
        lines.append(_comment(f"and {len(left) - _NAMED:,} more that auto leaves out"))
    if not said:
        return [
            *lines,
            _commented("columns: auto", "numbers standardized, text and few integers as categories, dates in parts"),
        ]
    lines += [
        "columns:",
        _commented('  "*": auto', "all others: numbers standardized, text and few integers as categories"),
    ]
    lines += [_commented(f"  {scalar(name)}: {flow(config)}", by_name[name].why) for name, config in said.items()]
    return lines


def _comment(text: str) -> str:
    return "# " + _one_line(text)


def _commented(line: str, text: str) -> str:
    """A line with a comment behind it, or before it where both are too long for one."""
    if not text:
        return line
    both = f"{line.ljust(_COMMENT_AT)} # {_one_line(text)}"
    indent = line[: len(line) - len(line.lstrip())]
    return both if len(both) <= _WIDEST else f"{indent}# {_one_line(text)}\n{line}"


def _one_line(text: str) -> str:
    """Text that may stand in a comment: YAML allows no control characters in one."""
    return "".join(c if c.isprintable() else " " for c in text)
