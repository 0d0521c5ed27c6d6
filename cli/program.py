"""`topogate`, and `kubectl topogate`: exit codes are 0, 1 for errors, 2 for bad input, 3 where a job would wait."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol, runtime_checkable

import typer

from cli import shell_completion
from cli.command_line import app
from cli.failures import BAD_INPUT, ERROR, Failure
from cli.reporting.table import print_remark
from core.runtime.report.logs import LineFormatter

PLUGIN = "kubectl-topogate"
QUEUE_COMMAND = "cli.queue_command"
TRACEBACK = "TOPOGATE_TRACEBACK"  # in the environment: show where a bug is


@runtime_checkable
class _UsageError(Protocol):
    """What typer raises for a wrong command line; newer versions bring their own click, so that its classes are not click's."""

    exit_code: int

    def format_message(self) -> str: ...


def main(arguments: list[str] | None = None) -> int:
    """Runs a command line (None: the process's own) and returns the exit code: 0, 1 for errors, 2 for bad input, 3 where a job would wait,
    130 where it is interrupted. Each error is printed on stderr in one line; a bug is raised only with TOPOGATE_TRACEBACK set."""
    shell_completion.prepare()
    program = "kubectl topogate" if arguments is None and sys.argv[0].endswith(PLUGIN) else shell_completion.PROGRAM
    command = typer.main.get_command(app)
    try:
        with _show_warnings_in_lines():
            code = command.main(arguments, prog_name=program, complete_var=shell_completion.VARIABLE, standalone_mode=False)
        sys.stdout.flush()  # a reader that has closed the pipe is found out here
    except Failure as failure:
        for line in failure.lines:
            print_remark(line)
        return failure.code
    except (typer.Abort, KeyboardInterrupt):
        print_remark("interrupted")
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader has closed the pipe, as with `| head`
        return ERROR
    except Exception as error:
        if not isinstance(error, _UsageError):
            return _report_bug(error)
        _print_usage_error(error)
        return BAD_INPUT
    return code if isinstance(code, int) else 0


def run_process() -> int:
    """Runs the process's command line and returns the exit code, as `main`. `topogate queue` ends the process itself: to free what it has
    read, object by object, takes a sixth of its time, and it has started nothing that has an end of its own."""
    code = main()
    if QUEUE_COMMAND in sys.modules and code == 0:
        os._exit(code)  # all is printed and flushed
    return code


def complete_for_kubectl() -> int:
    """Answers kubectl, which runs `kubectl_complete-topogate` with the words after `kubectl topogate` for what the last of them may become:
    one completion in a line, and then whether files may be offered, too. Returns 0."""
    words = sys.argv[1:]
    options = shell_completion.list_file_options(typer.main.get_command(app))
    if len(words) > 1 and words[-2] in options:
        print(shell_completion.FILES)
        return 0
    shell_completion.ask_for_kubectl(words)
    with suppress(SystemExit):
        main([])
    print(shell_completion.NO_FILES)
    return 0


def _print_usage_error(error: _UsageError) -> None:
    """Prints a wrong command line as one line, and the help that a bare `topogate` gets in the form that it has."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message(), file=sys.stderr)
        return
    message = " ".join(error.format_message().split()).replace(": Value error, ", ": ").removesuffix(".")
    if message:  # none where typer has printed the help itself
        print_remark(f"{message}; --help lists what is accepted")


def _report_bug(error: Exception) -> int:
    if os.environ.get(TRACEBACK):
        raise error
    why = " ".join(str(error).split())
    print_remark(f"this is a bug of topogate's: {type(error).__name__}: {why}; {TRACEBACK}=1 shows where")
    return ERROR


@contextmanager
def _show_warnings_in_lines() -> Iterator[None]:
    """What is logged, such as an object that cannot be read, in the form of all else; a process sets up logs of its own."""
    handler, root = logging.StreamHandler(sys.stderr), logging.getLogger()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(LineFormatter("topogate: warning: "))
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
