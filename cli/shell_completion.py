"""Completion scripts: the shell asks the command itself, by an environment variable, what could come next. It gets no error, and does not
wait for a cluster for more than two seconds."""

import atexit
import os
import shlex
import signal
from enum import StrEnum
from typing import Any

from typer.completion import completion_init, get_completion_script  # type: ignore[attr-defined]  # nor does it say where else

PROGRAM = "topogate"
VARIABLE = "_TOPOGATE_COMPLETE"
_LONGEST_S = 1.6  # for what is outside the process
_ANSWER = "    COMPREPLY=( $("
_FILE = "FILE"
_last_lines = list[bytes]()  # of a process that ends at once
NO_FILES, FILES = ":4", ":0"  # cobra's directives: complete with what is printed alone, or with files


class Shell(StrEnum):
    """Shells that are known."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def build_script(shell: Shell, command: Any) -> str:
    """Returns the script for a shell that completes the command `PROGRAM`; a shell has to read it once. In bash, files are offered for the
    options of `command` with a file only: elsewhere they would be offered where the cluster has no names."""
    script = get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell.value)
    if shell is not Shell.BASH:
        return script
    options = "|".join(sorted(list_file_options(command)))
    case = f'    COMPREPLY=()\n    case "${{COMP_WORDS[COMP_CWORD-1]}}" in {options}) compopt -o default; return 0 ;; esac\n'
    return script.replace("complete -o default -F", "complete -F").replace(_ANSWER, f"{case}{_ANSWER}")


def list_file_options(command: Any) -> set[str]:
    """Returns the options, of a command and all below it, that are followed by the name of a file, such as `--nodes`."""
    found = {option for param in command.params if param.metavar == _FILE for option in param.opts if option.startswith("-")}
    for below in getattr(command, "commands", {}).values():
        found |= list_file_options(below)
    return found


def prepare() -> None:
    """Registers the shells' completions with Typer, for the whole process; `main` needs it to answer a script of `build_script`, which sets
    `VARIABLE`. May be called again. A process that is to answer one writes nothing to stderr from then on."""
    completion_init()
    if VARIABLE in os.environ:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def limit_wait() -> None:
    """Ends a process that is to answer a shell, without an answer, if it still runs in 1.6 s. A file server, a name server or a plugin
    for credentials may not answer: it is to be called before the first of these is asked. Does nothing in any other process."""
    if VARIABLE in os.environ:
        signal.signal(signal.SIGALRM, _end_at_once)
        signal.setitimer(signal.ITIMER_REAL, _LONGEST_S)
        atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)  # later the signal would end the process by itself


def _end_at_once(number: int, frame: object) -> None:
    """Ends the process, whatever its threads wait for."""
    for line in _last_lines:
        os.write(1, line)
    os._exit(0)


def ask_for_kubectl(words: list[str]) -> None:
    """Sets the environment variables by which bash asks for the completions of the last of the words, which follow `PROGRAM`. A process
    that ends without an answer in time prints `NO_FILES`, as kubectl expects it."""
    _last_lines[:] = [f"{NO_FILES}\n".encode()]
    line = [PROGRAM, *(words or [""])]
    os.environ |= {VARIABLE: "complete_bash", "COMP_WORDS": shlex.join(line), "COMP_CWORD": str(len(line) - 1)}
