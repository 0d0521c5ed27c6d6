"""Objects that other installed packages offer under a group of entry points."""

from importlib.metadata import EntryPoint, entry_points
from typing import Any


class BrokenPlugin(Exception):
    """An entry point that cannot be used; the message has its name, its package and the reason."""


def load(group: str) -> list[Any]:
    """Returns what the entry points of a group name, in the order of their names, then of their values. A class is called without
    arguments, and its object returned; anything else is returned as it is. Empty where nothing is installed for the group. Raises
    BrokenPlugin for the first that cannot be loaded, or with a class that raises an error when it is called."""
    return [_load(entry) for entry in sorted(entry_points(group=group), key=lambda entry: (entry.name, entry.value))]


def _load(entry: EntryPoint) -> Any:
    try:
        found = entry.load()
        return found() if isinstance(found, type) else found
    except Exception as error:
        package = f" of package {entry.dist.name}" if entry.dist is not None else ""
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise BrokenPlugin(f"{entry.group} {entry.name!r}{package} ({entry.value}) cannot be loaded: {why}") from error
