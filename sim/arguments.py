"""Arguments of the simulation's programs: whole numbers with a lowest value, and files with steps."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from sim.scenario import Step


def at_least(lowest: int) -> Callable[[str], int]:
    """Reads an argument that is a whole number of at least `lowest`. It raises `argparse.ArgumentTypeError` for any other text."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = lowest - 1
        if number < lowest:
            raise argparse.ArgumentTypeError(f"{text!r} is not accepted: it must be a whole number of at least {lowest}")
        return number

    return read


def read_steps(text: str) -> list[Step]:
    """The steps in the file that an argument names. Raises `argparse.ArgumentTypeError` where it has none."""
    try:
        return [_read_step(each) for each in json.loads(Path(text).read_text())]
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text} can't be read: {error.strerror}") from error
    except (TypeError, ValueError) as error:
        wanted = (
            "a JSON list of steps is accepted, each with a name, a detail, a seed and seconds, as sim.run writes it for a seed that fails"
        )
        raise argparse.ArgumentTypeError(f"{text} has no steps ({error}): {wanted}") from error


def _read_step(each: object) -> Step:
    match each:
        case [str() as name, str() as detail, int() as seed, int() | float() as wait_s]:
            return Step(name, detail, seed, wait_s)
    raise ValueError(f"{json.dumps(each)} is no step")
