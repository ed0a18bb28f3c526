"""`headway completion`: the Tab key completes commands, options and values."""

from typing import Literal

from flows.cli.app import application
from flows.cli.commands import answer
from flows.cli.options import JsonOption
from headway.errors import ConfigError


def completion(
    shell: Literal["bash", "zsh", "fish"] | None = None,
    /,
    *,
    install: bool = False,
    options: JsonOption = JsonOption(),
) -> int:
    """The completion script of a shell on stdout: `source <(headway completion bash)`; or, with --install, installed.

    Args:
        shell: bash, zsh or fish (default: the shell in which this is typed).
        install: install it: write the script to its place, and load it in the shell's startup file.
    """
    from cyclopts.completion.detect import ShellDetectionError, detect_shell

    app = application()
    try:
        chosen = shell or detect_shell()
    except ShellDetectionError:
        fix = "headway completion bash, zsh or fish"
        raise ConfigError("the shell is not known here", where="SHELL", fix=fix) from None
    if not install:
        script = app.generate_completion(shell=chosen)
        return answer(options, {"shell": chosen, "script": script}, script)
    path = app.install_completion(shell=chosen)
    text = f"written to {path}; it works in every {chosen} that is started from now on"
    return answer(options, {"shell": chosen, "path": str(path)}, text)
