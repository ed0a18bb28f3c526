"""The base class of config models, and the functions that read a model from a file.

class SplitConfig(Frozen):
    eval: float = 0.2

load(SplitConfig, {"eval": "x"}, where="pipeline.yaml")   # ConfigError: split.eval: 'x' is not a number
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from headway.config_errors import sentences
from headway.errors import ConfigError
from headway.messages import short
from headway.redaction import protect, remember

Model = TypeVar("Model", bound=BaseModel)


class Frozen(BaseModel):
    """An immutable config model that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), defer_build=True)


class Result(BaseModel):
    """Part of a stage's answer that people read; keys that it does not have are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=(), defer_build=True)


_MOST_VALUES, _MOST_DEPTH = 1_000_000, 100
"""Of a YAML document with its aliases written out."""


def read_yaml(path: Path, *, keys: Sequence[str] = ()) -> dict[str, Any]:
    """The mapping in a YAML file; ConfigError when it is missing, not YAML, or not a mapping.

    Args:
        keys: some of them stand in every such file. A file without any is another kind of file, perhaps one that holds
            secrets: its error repeats nothing of it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            "no such file",
            where=str(path),
            fix="name a pipeline.yaml or its folder; headway init DATA writes a new one",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", where=str(path)) from None
    if keys and not re.search(rf"""\b({"|".join(keys)})["']?\s*:""", text):
        first = " or ".join(f"'{key}:'" for key in keys)
        raise ConfigError(
            f"is not a pipeline: it has none of the keys {', '.join(keys)}",
            where=str(path),
            fix=f"name a YAML file that begins with a key such as {first}",
        )
    try:
        value = _loaded(text)
    except _Unbounded as error:
        raise ConfigError(f"not valid YAML: {error}", where=str(path), fix="use fewer levels and aliases") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise ConfigError(f"not valid YAML: {getattr(error, 'problem', None) or error}", where=where) from None
    if not isinstance(value, dict):
        raise ConfigError("is not a mapping of keys to values", where=str(path), fix="start with 'name: ...'")
    return value


class _UniqueKeyLoader(yaml.SafeLoader):
    """A YAML loader that refuses duplicate keys; plain YAML silently keeps the last one."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key must be a single word, not a list or mapping", key_node.start_mark
                )
            if key_node.tag == "tag:yaml.org,2002:null" and key_node.value:
                key_node.tag = (
                    "tag:yaml.org,2002:str"  # `parse: {null: [...]}`: a key is a name, and one is called null
                )
            key = self.construct_object(key_node, deep=deep)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} stands twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_object(self, node, deep=False):
        try:
            return super().construct_object(node, deep)
        except ValueError as error:  # a date in month 13
            raise yaml.constructor.ConstructorError(
                None, None, f"{node.value!r}: {error} (quote it if it is text)", node.start_mark
            ) from None


# YAML 1.1 takes 1e-4 for text, and 1.0e-4 for a number; YAML 1.2, and everybody, takes both for numbers
_UniqueKeyLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read_value(text: str) -> Any:
    """Read one YAML value, as in a file; ConfigError when it is not valid."""
    try:
        return _loaded(text)
    except (_Unbounded, yaml.YAMLError) as error:
        raise ConfigError(
            f"{short(text, 80)!r} is not a YAML value: {getattr(error, 'problem', None) or error}"
        ) from None


class _Unbounded(ValueError):
    """A document that is nested too deeply, or expands to too many values."""


def _loaded(text: str) -> Any:
    """Load a YAML text, unless it is nested too deeply or its aliases expand to too many values."""
    try:
        value = yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 (a SafeLoader)
    except RecursionError:
        raise _Unbounded("nested too deeply") from None
    stack, values = [(value, 0)], 0
    while stack:
        part, depth = stack.pop()
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        values += 1 + len(inner)
        if depth > _MOST_DEPTH:
            raise _Unbounded(f"nested more than {_MOST_DEPTH} levels deep")
        if values > _MOST_VALUES:
            raise _Unbounded(f"its aliases stand for more than {_MOST_VALUES:,} values")
        stack.extend((child, depth + 1) for child in inner if isinstance(child, dict | list))
    return value


def load(model: type[Model], value: Any, *, where: str) -> Model:
    """Validate `value` as `model`; ConfigError names the file, the key, the value and the allowed values."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise ConfigError("\n".join(sentences(model, error, value)), where=where, fix=None) from None


_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def expand(text: str, *, where: str) -> str:
    """Replace each ${NAME} in `text` from the environment; ConfigError when NAME is not set.

    What was put in is hidden from then on wherever a text leaves the process: see headway.redaction.
    """

    def value(match: re.Match[str]) -> str:
        try:
            setting = os.environ[match[1]]
        except KeyError:
            raise ConfigError(
                f"the environment variable {match[1]} is not set (in {text!r})",
                where=where,
                fix=f"export {match[1]}=...",
            ) from None
        remember(match[1], setting)
        return setting

    protect()
    return _VARIABLE.sub(value, text)
