"""Work in pieces: a generator that yields wherever it may be interrupted, and returns its result."""

from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")
Pieces = Generator[None, None, T]


def run_whole(pieces: Pieces[T]) -> T:
    """Runs work to its end without an interruption and returns its result; errors of the work pass through."""
    while True:
        try:
            next(pieces)
        except StopIteration as done:
            result: T = done.value
            return result


def run_piece(pieces: Pieces[T], is_enough: Callable[[], bool]) -> tuple[T] | None:
    """Continues work by one piece at least, until `is_enough` returns True after one or it ends. Returns its result in a tuple of one; None
    where there is more to do."""
    while True:
        try:
            next(pieces)
        except StopIteration as done:
            return (done.value,)
        if is_enough():
            return None
