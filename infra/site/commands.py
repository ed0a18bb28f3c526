"""The reference of the command line, from the commands' own parameters: the same that `headway COMMAND --help` prints."""

from __future__ import annotations

import os

from flows.cli.app import COMMANDS, EPILOG, application
from flows.cli.usage import page as help_page


def page() -> str:
    """Markdown: the commands by group, each with its help at 88 columns."""
    os.environ["COLUMNS"] = "88"
    app = application()
    parts = [f"{EPILOG[0].upper()}{' '.join(EPILOG[1:].split())}."]
    for group, commands in COMMANDS.items():
        parts.append(f"## {group}")
        for name in commands:
            parts.append(f"### headway {name}\n\n```text\n{help_page(app, name)}\n```")
    return "\n\n".join(parts)
