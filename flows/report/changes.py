"""What changed from one run to another: settings that were asked for, what `auto` chose otherwise, code and tools.

    [each.key for each in changed_settings(before, after)]     # ["training.steps"]
    auto_changes(before, after)                                # what auto chose then and now
    why_chosen(before, after)                                  # ", for more rows"

A setting in pipeline.yaml is compared with the earlier run's, or with the value that the earlier run used instead. Choices of
`auto` are compared with its earlier choices. So if `auto` chooses more steps for more rows, no setting has changed.
"""

import json
import math
from collections.abc import Mapping
from functools import reduce
from typing import Any

import yaml
from pydantic import JsonValue, ValidationError

from flows.config.pipeline import Pipeline
from flows.records import Code, RunRecord
from flows.report.model import cell
from headway.config import Frozen
from headway.errors import HeadwayError

Settings = Mapping[str, JsonValue]


class Change(Frozen):
    """A setting, fact or part of the code that differs: its values in A and B; None where that side lacks it."""

    key: str
    a: JsonValue
    b: JsonValue


def changed_settings(before: RunRecord, after: RunRecord) -> list[Change]:
    """Returns the settings, the seed among them, that one run asked for and that have another value in the other run;
    nested settings key by key. Empty if a run did not record its config."""
    if before.config is None or after.config is None:
        return []
    asked = differences({**before.config, "seed": before.seed}, {**after.config, "seed": after.seed})
    known = [(each.key, _in_words(before, each.key, each.a), _in_words(after, each.key, each.b)) for each in asked]
    return [Change(key=key, a=a, b=b) for key, a, b in known if a != b]


def auto_changes(before: RunRecord, after: RunRecord) -> list[Change]:
    """Returns the settings that neither run asked for and for which `auto` chose different values."""
    runs = (before, after)
    if not all(run.training and run.training.training and run.training.model for run in runs):
        return []
    then, now = ({"training": run.training.training, "model": run.training.model} for run in runs if run.training)
    keys = [each.key for each in differences(then, now)]
    keys = [key for key in keys if all(reduce(_at, key.split(".")[:2], run.config) is None for run in runs)]
    known = [(key, _value(before, key), _value(after, key)) for key in keys]
    return [Change(key=key, a=_written(a), b=_written(b)) for key, a, b in known if a != b]


def why_chosen(before: RunRecord, after: RunRecord) -> str:
    """Returns why `auto` chose other values, such as ", for more rows"; empty if rows and settings are the same."""
    then, now = (run.training.rows if run.training else 0 for run in (before, after))
    if then != now:
        return ", for more rows" if now > then else ", for fewer rows"
    return ", for these settings" if changed_settings(before, after) else ""


def differences(a: object, b: object, at: str = "") -> list[Change]:
    """Returns a change for each nested key, below the path `at`, that differs in two configs. A missing section is empty."""
    if a == b:
        return []
    mine, theirs = ({} if each is None else each for each in (a, b))
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        names = {**mine, **theirs}
        found = [each for n in names for each in differences(mine.get(n), theirs.get(n), f"{at}.{n}".lstrip("."))]
        if found or (a is not None and b is not None):
            return found
    return [Change.model_validate({"key": at, "a": a, "b": b})]


def code_in(code: Code | None) -> dict[str, JsonValue]:
    """Returns {name: text or None}: the commit, the files that differ from it, the user's modules and the versions of tools."""
    if code is None:
        return {}
    git = code.git
    changed = ", ".join(git.changed) if git else ""
    of_git: dict[str, JsonValue] = {"commit": git.commit if git else None, "not committed": changed or None}
    return {**of_git, **code.modules, **code.tools}


def with_defaults(config: Settings | None) -> Settings | None:
    """Returns a config with every default filled in; unchanged if it is not a valid config for this release of Headway."""
    try:
        return None if config is None else Pipeline.model_validate(config).model_dump(mode="json")
    except (ValidationError, HeadwayError):
        return config


def _value(run: RunRecord, key: str) -> Any:
    """Returns the value of a setting that a run left out: the one that `auto` chose, else the default."""
    chosen = reduce(_at, key.split("."), run.training and run.training.model_dump())
    return reduce(_at, key.split("."), with_defaults(run.config)) if chosen is None else chosen


def _in_words(run: RunRecord, key: str, asked: Any) -> Any:
    """Returns a setting of a run as text. If the run's config leaves the key out, that is the chosen value or the default."""
    if asked not in (None, {}):
        return _written(asked)
    part = key.partition(".")[0]
    if part in ("training", "model") and not getattr(run.training, part, None):
        return "auto"
    value, usual = _value(run, key), reduce(_at, key.split("."), with_defaults(run.config))
    if value != usual:
        return f"auto ({cell(_written(value))})"
    return "not set" if usual is None else _written(usual)


def _at(config: Any, name: str) -> Any:
    return config.get(name) if isinstance(config, Mapping) else None


def _written(value: Any) -> Any:
    """Returns a value as pipeline.yaml writes it, without nulls; numbers, texts and lists of them unchanged."""
    if isinstance(value, bool):
        return json.dumps(value)
    if not isinstance(value, Mapping | list) or "{" not in (text := json.dumps(value)):
        return value
    known = json.loads(text, object_hook=lambda pairs: {key: each for key, each in pairs.items() if each is not None})
    return yaml.safe_dump(known, default_flow_style=True, sort_keys=False, width=math.inf).strip()
