"""Help pages in plain text at the terminal's width, made from the parameters of the commands; and usage errors.

print(page(application(), "run"))

Cyclopts' own pages need rich, which would double the import time of a help page.
"""

import inspect
import shutil
import textwrap
from collections.abc import Iterator, Sequence

from cyclopts import App, CycloptsError, MissingArgumentError, UnknownCommandError, UnusedCliTokensError
from cyclopts.argument import Argument

from headway.errors import ConfigError

_INDENT = 24
_NARROW = 15
"""The indent of descriptions in the list of commands, where each command has one line of 80 columns."""


def page(app: App, command: str = "") -> str:
    """Returns the help page of a command; without a command, the list of all commands."""
    width = min(shutil.get_terminal_size().columns, 120)
    entries: dict[str, list[tuple[str, str]]] = {}
    if command:
        arguments = parameters(app, command)
        usage, end = f"{command} {_positional(arguments)}".rstrip(), ""
        text = (inspect.getdoc(app[command].default_command) or "").partition("\n\nArgs:")[0]
        for argument in arguments:
            entries.setdefault(_group(argument), []).append((_name(argument), _description(argument)))
    else:
        usage, text, end = "COMMAND", app.help, app.help_epilogue or ""
        for name in commands(app):
            spec = app._get_item(name)
            entries.setdefault(str(spec.group), []).append((name, str(spec.help)))
        entries["Options"] = [
            ("--help", "Describes a command: headway COMMAND --help."),
            ("--version", "Prints the version."),
            ("--install-completion", "Lets the Tab key complete commands, options and values in this shell."),
        ]
    parts = [f"usage: headway {usage}" + " [OPTIONS]" * bool(command), *_wrapped(text.split("\n\n"), width)]
    ordered = sorted(entries, key=lambda group: {"Window": 1, "Common": 2}.get(group, 0))  # shared options come last
    indent = _INDENT if command else _NARROW
    parts += [f"{group}:\n" + "\n".join(_lines(entries[group], width, indent)) for group in ordered]
    return "\n\n".join([*parts, *_wrapped([end.replace("\n", " ")] * bool(end), width)])


def commands(app: App) -> list[str]:
    """Returns the names of the commands."""
    return [name for name in app if not name.startswith("-")]


def parameters(app: App, command: str) -> list[Argument]:
    """Returns a command's parameters, in the order of the function."""
    return [argument for argument in app[command].assemble_argument_collection(parse_docstring=True) if argument.show]


def usage_error(mistake: CycloptsError, command: str) -> ConfigError:
    """Returns a usage error of Cyclopts as a ConfigError; its sentence has the nearest right word if there is one."""
    if isinstance(mistake, UnknownCommandError):
        fix = "headway --help lists all; options come after the command, as in headway runs --json"
        return ConfigError(str(mistake), fix=fix)
    problem = str(mistake)
    if isinstance(mistake, UnusedCliTokensError):
        problem = f"One argument too many: {' '.join(map(repr, mistake.unused_tokens or []))}"
    elif isinstance(mistake, MissingArgumentError) and (argument := mistake.argument) and not _written(mistake):
        problem = f"{_name(argument)} is needed"
    return ConfigError(problem, fix=f"headway {command} --help lists its arguments and options")


def _written(mistake: MissingArgumentError) -> bool:
    """Returns whether the user wrote the option, so that only its value is missing."""
    return mistake.keyword is not None or bool(mistake.argument and mistake.argument.tokens)


def _positional(arguments: Sequence[Argument]) -> str:
    return " ".join(
        argument.name if argument.required else f"[{argument.name}]"
        for argument in arguments
        if not argument.name.startswith("-")
    )


def _group(argument: Argument) -> str:
    groups = argument.parameter.group
    first = groups[0] if isinstance(groups, tuple) and groups else groups
    name = str(getattr(first, "name", first or ""))
    return "Options" if name == "Parameters" else name


def _name(argument: Argument) -> str:
    values = argument.get_choices()
    metavar = argument.parameter.metavar or ("|".join(values) if values else "VALUE")
    return argument.name if argument.hint is bool or not argument.name.startswith("-") else f"{argument.name} {metavar}"


def _description(argument: Argument) -> str:
    """Returns a parameter's help, from its type or its function's docstring, with its default or "(required)"."""
    default = argument.field_info.default
    plain = isinstance(default, str | int | float) and not isinstance(default, bool) and argument.show_default
    plain = plain and default != ""
    text = " ".join((argument.parameter.help or "").split()).removesuffix(".")
    return text + (f" (default: {default})" if plain else " (required)" * argument.required) + "."


def _lines(rows: Sequence[tuple[str, str]], width: int, indent: int) -> Iterator[str]:
    for name, text in rows:
        head = f"  {name:<{indent - 4}}  "
        if len(head) > indent:  # its text begins below
            yield head.rstrip()
            head = " " * indent
        yield textwrap.fill(text, width, initial_indent=head, subsequent_indent=" " * indent, break_on_hyphens=False)


def _wrapped(paragraphs: Sequence[str], width: int) -> list[str]:
    return [textwrap.fill(paragraph, width, break_on_hyphens=False) for paragraph in paragraphs]
