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
    """Returns the script for a shell that completes the command `PROGRAM`; a shell has to read it once."""
    return get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell.value)


def prepare() -> None:
    """Registers the shells' completions with Typer, for the whole process; `main` needs it to answer a script of `build_script`, which sets
    `VARIABLE`. May be called again."""
    completion_init()
