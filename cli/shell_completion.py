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
    """What the shell has to read once."""
    return get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell.value)


def prepare() -> None:
    """Makes the command answer what such a script asks."""
    completion_init()
