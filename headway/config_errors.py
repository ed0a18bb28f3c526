"""Turns pydantic's validation errors into messages about the config file: the key, the value, and what is allowed.

    sentences(Pipeline, error, raw)      # ["columns.a.transform: there is no operation 'vocabuary'; did you mean ..."]

A key that may hold several kinds of things (`auto`, or a mapping) gives an error for each kind; what is said is that of the
kind that was meant, or, where none comes near, all of them in one sentence.
"""

import difflib
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from headway.messages import did_you_mean, listed, short
from headway.redaction import redact

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
    """One sentence per problem of `value`, which should have been a `model`."""
    errors = [(_tokens(item["loc"], value), dict(item)) for item in error.errors()]
    return [_sentence(model, loc, item) for loc, item in _settled(errors, ())]


Token = tuple[bool, Any]
"""(whether it is a kind of value, not a key; what it says)"""


def _tokens(loc: Loc, value: Any) -> list[Token]:
    """The parts of an error's path: keys, and the names of kinds that pydantic puts between them."""
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
    """The errors by the path of their key, merged to one per key that may hold several kinds of values."""
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
    """The allowed word that was probably meant."""
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
    """The models that may be at a path, as far as the annotations tell."""
    models = [model]
    for part in loc:
        if fields := _called(models, part):
            models = [inner for field in fields for inner in _inside(field.annotation)]
        else:  # a tag picks one of them; at a list's index or a mapping's key all of them may stand
            models = [kind for kind in models if part in _tags(kind)] or models
    return models


def _called(models: Sequence[type[BaseModel]], *names: Any) -> list[Any]:
    """The fields with these names."""
    return [f for model in models for name, f in model.model_fields.items() if {name, f.alias} & {*names}]


def _inside(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    parts = get_args(annotation)
    return [model for part in (parts[:1] if get_origin(annotation) is Annotated else parts) for model in _inside(part)]


def _tags(model: type[BaseModel]) -> list[str]:
    """The words that distinguish a model from others in the same place."""
    return [get_args(field.annotation)[0] for field in model.model_fields.values() if _is_tag(field)]


def _is_tag(field: Any) -> bool:
    return get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1


def _fields(models: Sequence[type[BaseModel]], *, tags: bool = False) -> list[str]:
    """The keys of any of the models; those that only distinguish them are left out, unless `tags`."""
    fields = [item for model in models for item in model.model_fields.items()]
    return list(dict.fromkeys(field.alias or name for name, field in fields if tags or not _is_tag(field)))
