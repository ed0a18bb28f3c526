"""What the command line has: its commands, and the parameters of each."""

from cyclopts import App
from cyclopts.argument import Argument


def commands(app: App) -> list[str]:
    """The names of the commands."""
    return [name for name in app if not name.startswith("-")]


def parameters(app: App, command: str) -> list[Argument]:
    """A command's parameters, in the order of the function."""
    return [argument for argument in app[command].assemble_argument_collection(parse_docstring=True) if argument.show]
