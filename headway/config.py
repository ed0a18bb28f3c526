"""The base class of config models, and the functions that read a model from a file.

class SplitConfig(Frozen):
    eval: float = 0.2

load(SplitConfig, {"eval": "x"}, where="pipeline.yaml")   # ConfigError: split.eval: 'x' is not a number

An error says the key, the value, and what is allowed. For a key that may hold several kinds of values (`auto`, or a mapping),
pydantic gives one error per kind. The message has the error of the kind that was meant, or all errors in one sentence.
"""

import difflib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from headway.errors import ConfigError
from headway.messages import did_you_mean, listed, short
from headway.redaction import protect, redact, remember

Model = TypeVar("Model", bound=BaseModel)


class Frozen(BaseModel):
    """An immutable config model that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), defer_build=True)


OneOrMore = BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)
"""A validator that makes a tuple of a single string, as in `Annotated[tuple[str, ...], OneOrMore]`."""


def refuse_idle(config: BaseModel, keys: Sequence[str], when: str) -> None:
    """Refuses keys that have no effect, given the values of the config's other keys.

    Args:
        when: the condition under which the keys have an effect, for the message: "with mode: hash".

    Raises:
        ValueError: one of the keys has another value than its default.
    """
    for key in keys:
        field = type(config).model_fields[key]
        if getattr(config, key) != field.get_default(call_default_factory=True):
            raise ValueError(f"{field.alias or key} only means something {when}: leave it out")


class Result(BaseModel):
    """The base class of immutable results, such as the answers of stages and their parts. Unknown keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=(), defer_build=True)


_MOST_VALUES, _MOST_DEPTH = 1_000_000, 100
"""The limits of a YAML document with its aliases expanded: its number of values, and its depth of nesting."""


def read_yaml(path: Path, *, keys: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the mapping in a YAML file. ConfigError when the file is missing, is not YAML, or is not a mapping.

    Args:
        keys: every such file has at least one of these keys. A file without any may be of another kind, with secrets in it. The
            error for such a file quotes nothing from the file.
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
    """Returns the value that a YAML text stands for; ConfigError when the text is not YAML."""
    try:
        return _loaded(text)
    except (_Unbounded, yaml.YAMLError) as error:
        raise ConfigError(
            f"{short(text, 80)!r} is not a YAML value: {getattr(error, 'problem', None) or error}"
        ) from None


class _Unbounded(ValueError):
    """Raised for a YAML document that is nested too deeply, or whose aliases expand to too many values."""


def _loaded(text: str) -> Any:
    """Returns the value of a YAML text. Raises `_Unbounded` if its nesting is too deep, or if it has too many values."""
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
    """Returns `value` as a `model`. If that fails, a ConfigError names the file, the key, the value and the allowed values."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise ConfigError("\n".join(sentences(model, error, value)), where=where, fix=None) from None


_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def expand(text: str, *, where: str) -> str:
    """Returns `text` with each ${NAME} replaced by the environment variable NAME; ConfigError when NAME is not set.

    From then on, the values are redacted in texts that leave the process, unless they are too short (`headway.redaction`)."""

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


Loc = tuple[Any, ...]
Error = dict[str, Any]
_LABEL = re.compile(
    r"^(literal|dict|list|tuple|set|frozenset|union|tagged-union|nullable|constrained|function|lax-or-strict|"
    r"json-or-python|definition-ref|is-instance|chain)\b|^(str|int|float|bool|none|bytes|date|any|model|[A-Z]\w*Config)$"
)
_PLAIN = {
    "int_parsing": "should be a whole number",
    "int_type": "should be a whole number",
    "int_from_float": "should be a whole number",
    "float_parsing": "should be a number",
    "float_type": "should be a number",
    "bool_parsing": "should be true or false",
    "bool_type": "should be true or false",
    "string_type": "should be text",
    "tuple_type": "should be a list",
    "list_type": "should be a list",
    "dict_type": "should be a mapping of keys to values",
}


def sentences(model: type[BaseModel], error: ValidationError, value: Any) -> list[str]:
    """Returns one sentence per problem in `error`, which pydantic raised for `value` as a `model`."""
    errors = [(_tokens(item["loc"], value), dict(item)) for item in error.errors()]
    return [_sentence(model, loc, item) for loc, item in _settled(errors, ())]


Token = tuple[bool, Any]
"""A part of an error's path: whether it names a kind of value rather than a key, and the name."""


def _tokens(loc: Loc, value: Any) -> list[Token]:
    """Returns the parts of an error's path: the keys, and the kinds of values whose names pydantic puts between the keys."""
    tokens: list[Token] = []
    for part in loc:
        if (isinstance(value, dict) and part in value) or (
            isinstance(value, list | tuple) and isinstance(part, int) and part < len(value)
        ):
            value = value[part]
        elif isinstance(part, str) and _LABEL.match(part):
            tokens.append((True, part))
            continue
        elif part == "[key]":  # the part before is the key that is wrong
            continue
        tokens.append((False, part))
    return tokens


def _settled(errors: Sequence[tuple[list[Token], Error]], at: Loc) -> list[tuple[Loc, Error]]:
    """Returns (path, error) for each wrong key. If a key allows several types, the error is that of the type meant, or one for
    all."""
    kinds: dict[Any, list[tuple[list[Token], Error]]] = {}
    keys: dict[Any, list[tuple[list[Token], Error]]] = {}
    settled: list[tuple[Loc, Error]] = []
    for tokens, item in errors:
        if not tokens:
            settled.append((at, item))
        else:
            (kind, part), rest = tokens[0], tokens[1:]
            (kinds if kind else keys).setdefault(part, []).append((rest, item))
    for part, inner in keys.items():
        settled += _settled(inner, (*at, part))
    # the kind that was meant is the one that something further inside is wrong with
    meant = [inner for inner in kinds.values() if any(tokens for tokens, _ in inner)]
    if meant:
        for inner in meant:
            settled += _settled(inner, at)
    elif kinds:
        items = [item for inner in kinds.values() for _, item in inner]
        value_errors = [item for item in items if item["type"] == "value_error"]
        settled.append((at, {**(value_errors or items)[0], "all": value_errors or items}))
    return settled


def _sentence(model: type[BaseModel], loc: Loc, item: Error) -> str:
    key = ".".join(str(part) for part in loc) or "(top level)"
    if item["type"] == "missing":
        return f"{key}: is required"
    if item["type"] == "extra_forbidden":
        keys = sorted(_fields(_models(model, loc[:-1])))
        close = difflib.get_close_matches(str(loc[-1]), keys, 1)
        hint = f"; did you mean '{close[0]}'?" if close else f"; known keys: {', '.join(keys)}" if keys else ""
        return f"{key}: unknown key{hint}"
    messages = list(dict.fromkeys(_message(model, loc, error) for error in item.get("all", [item])))
    message = messages[0] + "".join(", or " + other.removeprefix("should ") for other in messages[1:])
    hint = _hint(item.get("all", [item]), item["input"])
    got = short(redact(repr(item["input"])), 80)  # half a secret would not be known as one
    return f"{key}: {message}{hint}" + ("" if got in message else f" (got {got})")


def _message(model: type[BaseModel], loc: Loc, item: Error) -> str:
    kind, context = item["type"], item.get("ctx", {})
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind in ("model_type", "model_attributes_type", "dataclass_type"):
        fields = _fields(_models(model, loc), tags=True)
        return "should be a mapping of keys to values" + (f", which are: {', '.join(fields)}" if fields else "")
    if kind == "union_tag_not_found":
        names = [tag for inner in _models(model, loc) for tag in _tags(inner)]
        by = str(context.get("discriminator", "")).strip("'")
        keys = item["input"] if isinstance(item["input"], dict) else {}
        near = [tag for key in keys for tag in difflib.get_close_matches(str(key), names, 1)]
        return f"should say its {by}: {listed([*map(repr, names)], 'or')}" + (
            f"; did you mean '{by}: {near[0]}'?" if near else ""
        )
    if kind == "union_tag_invalid":
        tags = re.findall(r"'([^']*)'", str(context.get("expected_tags", "")))
        by = str(context.get("discriminator", "")).strip("'")
        return f"there is no {by} {context.get('tag')!r}: it should be {listed([*map(repr, tags)], 'or')}" + _close(
            context.get("tag"), tags
        )
    if kind == "string_pattern_mismatch":
        about = [f.description for f in _called(_models(model, loc[:-1]), *loc[-1:]) if f.description]
        return f"should be like {context['pattern']}" + (f" ({about[0]})" if about else "")
    message = str(item["msg"]).removeprefix("Value error, ")
    return "should" + message.removeprefix("Input should") if message.startswith("Input should") else message


def _hint(items: Sequence[Error], value: Any) -> str:
    """Returns "; did you mean ...?" with the allowed word that is most like `value`; "" if no word is similar."""
    words = [
        word
        for item in items
        if item["type"] in ("literal_error", "enum")
        for word in re.findall(r"'([^']*)'", str(item.get("ctx", {}).get("expected", "")))
    ]
    return _close(value, words)


def _close(value: Any, words: Sequence[str]) -> str:
    hint = did_you_mean(value, words, cutoff=0.5) if isinstance(value, str) else ""
    return f"; {hint}" if hint else ""


def _models(model: type[BaseModel], loc: Loc) -> list[type[BaseModel]]:
    """Returns the models that may be at the path `loc` within `model`, according to the annotations."""
    models = [model]
    for part in loc:
        if fields := _called(models, part):
            models = [inner for field in fields for inner in _inside(field.annotation)]
        else:  # a tag picks one of them; at a list's index or a mapping's key all of them may stand
            models = [kind for kind in models if part in _tags(kind)] or models
    return models


def _called(models: Sequence[type[BaseModel]], *names: Any) -> list[Any]:
    """Returns the models' fields that have one of these names or aliases."""
    return [f for model in models for name, f in model.model_fields.items() if {name, f.alias} & {*names}]


def _inside(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    parts = get_args(annotation)
    return [model for part in (parts[:1] if get_origin(annotation) is Annotated else parts) for model in _inside(part)]


def _tags(model: type[BaseModel]) -> list[str]:
    """Returns a model's tags, by which pydantic tells models apart: the values of its fields that allow one value only."""
    return [get_args(field.annotation)[0] for field in model.model_fields.values() if _is_tag(field)]


def _is_tag(field: Any) -> bool:
    return get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1


def _fields(models: Sequence[type[BaseModel]], *, tags: bool = False) -> list[str]:
    """Returns the keys of all the models. Without `tags`, keys that allow only one value are left out."""
    fields = [item for model in models for item in model.model_fields.items()]
    return list(dict.fromkeys(field.alias or name for name, field in fields if tags or not _is_tag(field)))
