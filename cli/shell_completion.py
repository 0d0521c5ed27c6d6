"""Completion scripts: the shell asks the command itself, by an environment variable, what could come next."""

from enum import StrEnum

from typer.completion import completion_init, get_completion_script  # type: ignore[attr-defined]  # nor does it say where else

PROGRAM = "topogate"
VARIABLE = "_TOPOGATE_COMPLETE"


class Shell(StrEnum):
    """Shells that are known."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def build_script(shell: Shell) -> str:
    """Returns the script that a shell has to read once."""
    return get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell.value)


def prepare() -> None:
    """Prepares the command to answer what such a script asks."""
    completion_init()
