"""The references of the Python API, from the sources' signatures and docstrings; nothing is imported, TensorFlow neither.

python infra/site/python_api.py        # writes docs/python.md, whose programs the tests run
"""

from __future__ import annotations

import doctest
import textwrap
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).resolve().parents[2]
DOOR, MARK = ROOT / "docs" / "python.md", "<!-- made from the docstrings by infra/site/python_api.py -->\n"
"""The page of what `import headway` offers; below the mark it is made from the code."""
MODULES = {
    "tfcore.graph": tuple(
        f"tfcore.graph.{name}" for name in ("function", "retrace", "python_op", "scheduled", "shared_state", "specs")
    ),
    "tfcore.testing": ("tfcore.testing",),
    "beam_jobs.transforms": ("beam_jobs.transforms",),
}
"""What a person imports of the libraries, and the modules whose `__all__` it is."""


def door() -> str:
    """The text of docs/python.md: its head as it is, then the functions and classes of `import headway`."""
    loader = griffe.GriffeLoader(search_paths=[ROOT], docstring_parser="google")
    api = loader.load("flows.api")
    public = {name: api[name].final_target if api[name].is_alias else api[name] for name in api.exports}
    parts = [_module_text(api)]
    for name, entry in public.items():
        shown = f"headway.{name}" if entry.is_function else name
        parts.append(f"## {shown}\n{_entry(entry, f'headway.{name}')}")
    parts.append("## Errors\nAll are `HeadwayError`s of `headway.errors`, with `.problem`, `.where` and `.fix`.")
    above, mark, _ = DOOR.read_text(encoding="utf-8").partition(MARK)
    return f"{above}{mark}\n" + "\n\n".join(parts) + "\n"


def page() -> str:
    """Markdown: a section for each package, an entry for each public name."""
    loader = griffe.GriffeLoader(search_paths=[ROOT], docstring_parser="google")
    parts = []
    for title, modules in MODULES.items():
        parts.append(f"## {title}")
        seen = set()
        for path in modules:
            module = loader.load(path)
            parts += [f"### Module {path}", _module_text(module)] if title == "tfcore.graph" else []
            for name in _public(module):
                entry = module[name]
                entry = entry.final_target if entry.is_alias else entry
                if entry.path not in seen and (entry.is_function or entry.is_class):
                    seen.add(entry.path)
                    parts.append(_entry(entry, f"{path if title == 'tfcore.graph' else title}.{name}", heading=True))
    return "\n\n".join(part for part in parts if part)


def _public(module: Any) -> list[str]:
    exported = [str(name) for name in module.exports or ()]
    own = {name: member for name, member in module.members.items() if not member.is_alias and not name.startswith("_")}
    return exported or [name for name, member in own.items() if member.is_class]


def _entry(entry: Any, name: str, *, heading: bool = False) -> str:
    head = f"#### {name}\n\n" if heading else ""
    if entry.is_function:
        return f"{head}{_signature(entry, name)}\n\n{_docstring(entry)}"
    own = None if name.startswith("headway.") else entry.members.get("__init__")  # nobody makes those of headway
    parts = [f"{head}{_signature(own, name)}\n\n{_docstring(entry)}" if own is not None else head + _docstring(entry)]
    for member_name, member in entry.members.items():
        if member_name.startswith("_") or member.is_alias or not member.docstring:
            continue
        if member.is_function:
            parts.append(f"{_signature(member, f'{entry.name}.{member_name}')}\n\n{_docstring(member)}")
        else:
            kind = f": `{member.annotation}`" if member.annotation is not None else ""
            parts.append(f"`{entry.name}.{member_name}`{kind}\n\n{_docstring(member)}")
    return "\n\n".join(parts)


def _signature(function: Any, name: str) -> str:
    line = function.signature(return_type=function.name != "__init__", name=name)
    return f"```text\n{textwrap.fill(line, 100, subsequent_indent='    ', break_long_words=False, break_on_hyphens=False)}\n```"


def _module_text(module: Any) -> str:
    return _markdown(module.docstring.value) if module.docstring else ""


def _docstring(entry: Any) -> str:
    if not entry.docstring:
        return ""
    parts = []
    for section in entry.docstring.parse(
        "google", warnings=False, returns_multiple_items=False, returns_named_value=False
    ):
        match section.kind.value:
            case "text":
                parts.append(_markdown(section.value))
            case "parameters" | "raises" | "returns" | "attributes" as kind:
                title = "Arguments" if kind == "parameters" else kind.capitalize()
                rows = [f"- {_head(item, kind)}{_line(item.description)}" for item in section.value]
                parts.append(f"**{title}**\n\n" + "\n".join(rows))
    return "\n\n".join(parts)


def _head(item: Any, kind: str) -> str:
    name = getattr(item, "name", "") or (str(item.annotation).strip("()") if kind == "raises" else "")
    return f"`{name}`: " if name else ""


def _line(text: str) -> str:
    return _plain(" ".join(text.split()))


def _markdown(text: str) -> str:
    """A docstring as Markdown: what is indented is code, and an example of doctest is a program and what it prints."""
    parts = []
    for paragraph in text.strip().split("\n\n"):
        lines = paragraph.split("\n")
        if paragraph.startswith(">>>"):
            between = "\n"  # a blank line of the docstring is one of the program
            for example in doctest.DocTestParser().get_examples(paragraph):
                goes_on = parts and parts[-1].startswith("```python")
                above = f"{parts.pop()[:-3]}{between}" if goes_on else "```python\n"
                parts.append(f"{above}{example.source}```")
                parts += [f"```text\n{example.want}```"] if example.want else []
                between = ""
        elif all(line.startswith("    ") for line in lines if line):
            code = "\n".join(line[4:] for line in lines)
            if parts and parts[-1].endswith("\n```"):
                parts[-1] = f"{parts[-1][:-4]}\n\n{code}\n```"
            else:
                parts.append(f"```python\n{code}\n```")
        else:
            parts.append(_plain(paragraph))
    return "\n\n".join(parts)


def _plain(text: str) -> str:
    """Words that Markdown would take for markup, outside of code."""
    parts = text.split("`")
    return "`".join(
        part if i % 2 else "".join(f"\\{c}" if c in "*_[]<>{}$#" else c for c in part) for i, part in enumerate(parts)
    )


if __name__ == "__main__":
    DOOR.write_text(door(), encoding="utf-8")
