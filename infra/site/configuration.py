"""The reference of pipeline.yaml, from its JSON Schema, which the config classes make: what `headway schema` prints.

A class of its own, such as `gate`, is a section; what several keys take, such as a transform, stands once, under Shared forms.
"""

from __future__ import annotations

import json
from typing import Any

from flows.config.pipeline import Pipeline

REF = "#/$defs/"
BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


def page() -> str:
    """Markdown: a table for pipeline.yaml itself, then one for each section, and the forms that they share."""
    return Reference(Pipeline.model_json_schema(by_alias=True)).text()


class Reference:
    """The sections of a JSON Schema, in the order in which they are first named."""

    def __init__(self, schema: dict[str, Any]):
        self._schema, self._definitions = schema, schema.get("$defs", {})
        self._titles: dict[str, str] = {}
        """Of each definition the key that names it, if one alone does: its heading."""
        self._order: list[str] = []
        self._walk(schema, "")

    def text(self) -> str:
        parts = [self._table(self._schema)]
        for name in self._order:
            definition = self._definitions[name]
            if "properties" not in definition:
                continue
            said = " ".join(str(definition.get("description", "")).split())
            parts.append(f"({anchor(name)})=\n## {self._titles[name]}\n\n{escaped(said)}\n\n{self._table(definition)}")
        return "\n\n".join(parts)

    def _walk(self, value: Any, path: str) -> None:
        """Note each definition that a schema names, with the path of the key that is first to."""
        for key, field in value.get("properties", {}).items():
            here = f"{path}.{key}".lstrip(".")
            for name in _names(field):
                if name not in self._titles:
                    one = sum(name == other for other in _names(field)) and len(set(_names(field))) == 1
                    self._titles[name] = here if one else _spoken(name, self._definitions[name])
                    self._order.append(name)
                    self._walk(self._definitions[name], here if one else "")

    def _table(self, schema: dict[str, Any]) -> str:
        rows = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
        required = schema.get("required", [])
        for key, field in schema.get("properties", {}).items():
            default = "required" if key in required else self._default(field)
            meaning = field.get("description") or self._meaning(field)
            rows.append(f"| `{key}` | {self._type(field)} | {default} | {escaped(' '.join(meaning.split()))} |")
        return "\n".join(rows)

    def _meaning(self, field: dict[str, Any]) -> str:
        names = _names(field)
        return str(self._definitions[names[0]].get("description", "")) if len(set(names)) == 1 else ""

    def _default(self, field: dict[str, Any]) -> str:
        if "default" not in field:
            return "" if _names(field) else "none"
        default = field["default"]
        if default is None:
            return "none"
        if isinstance(default, dict) and default:
            return "see there" if _names(field) else f"`{json.dumps(default)}`"
        text = json.dumps(default).replace("|", "\\|")
        return "empty" if default in ({}, [], "") else f"`{text}`"

    def _type(self, field: dict[str, Any]) -> str:
        if "$ref" in field:
            name = field["$ref"].removeprefix(REF)
            definition = self._definitions[name]
            return f"[{self._titles[name]}](#{anchor(name)})" if "properties" in definition else self._type(definition)
        for key in ("anyOf", "oneOf", "allOf"):
            if key in field:
                kinds = dict.fromkeys(self._type(one) for one in field[key] if one.get("type") != "null")
                return " or ".join(kinds)
        if "const" in field:
            return f"`{field['const']}`"
        if "enum" in field:
            return " or ".join(f"`{value}`" for value in field["enum"])
        bounds = " and ".join(f"{sign} {field[key]:g}" for key, sign in BOUNDS.items() if key in field)
        match field.get("type"):
            case "array":
                kinds = [self._type(one) for one in field.get("prefixItems", [])] or [
                    self._type(field.get("items", {}))
                ]
                return f"list of {', '.join(kinds)}"
            case "object":
                inner = field.get("additionalProperties")
                return f"mapping of names to {self._type(inner)}" if isinstance(inner, dict) and inner else "mapping"
            case "integer" | "number" | "boolean" | "string" as kind:
                word = {"integer": "whole number", "number": "number", "boolean": "true or false", "string": "text"}[
                    kind
                ]
                return f"{word} {bounds}".replace("<", "&lt;").replace(">", "&gt;").strip()
        return "any value"


def anchor(name: str) -> str:
    return f"config-{name.lower()}"


def escaped(text: str) -> str:
    """For a cell of a table: plain words, but for the code that the sentence marks."""
    parts = text.split("`")
    return "`".join(
        part.replace("|", "\\|") if i % 2 else "".join(f"\\{c}" if c in "|*_[]<>{}$" else c for c in part)
        for i, part in enumerate(parts)
    )


def _names(field: Any) -> list[str]:
    """The definitions that a field names, however deep."""
    if isinstance(field, dict):
        own = [field["$ref"].removeprefix(REF)] if "$ref" in field else []
        return own + [name for key, value in field.items() if key != "default" for name in _names(value)]
    return [name for value in field for name in _names(value)] if isinstance(field, list) else []


def _spoken(name: str, definition: dict[str, Any]) -> str:
    """What a form that several keys share is called: by its `op` or `name` if that is fixed, else by its class."""
    for key in ("op", "name"):
        if constant := definition.get("properties", {}).get(key, {}).get("const"):
            return str(constant)
    return name.removesuffix("Config")
