"""Help pages and usage errors, both as the library makes them of the commands' own parameters: plain text, one sentence.

print(page(application(), "run"))
"""

import io
import shutil

from cyclopts import App, CycloptsError, UnknownCommandError, UnusedCliTokensError
from cyclopts.help import DefaultFormatter, PanelSpec
from rich.box import Box
from rich.console import Console

from headway.errors import ConfigError

_NO_LINES = Box("    \n" * 8)


def page(app: App, command: str = "") -> str:
    """The help of a command, or of all of them, at the terminal's width."""
    app.help_formatter = DefaultFormatter(panel_spec=PanelSpec(box=_NO_LINES, padding=0))
    out = io.StringIO()
    console = Console(file=out, width=min(shutil.get_terminal_size().columns, 120))
    app.help_print([command] if command else [], console=console)
    return "\n".join(line.rstrip() for line in out.getvalue().strip().splitlines())


def usage_error(mistake: CycloptsError, command: str) -> ConfigError:
    """A usage error in a sentence, with the nearest right word."""
    if isinstance(mistake, UnknownCommandError):
        fix = "headway --help lists all; options come after the command, as in headway runs --json"
        return ConfigError(str(mistake), fix=fix)
    said = str(mistake)
    if isinstance(mistake, UnusedCliTokensError):
        said = f"One argument too many: {' '.join(map(repr, mistake.unused_tokens or []))}"
    return ConfigError(said, fix=f"headway {command} --help lists its arguments and options")
