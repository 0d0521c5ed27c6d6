"""What a module that is played in memory leaves to the real control plane is played here."""

from __future__ import annotations

import importlib
import pkgutil

from tests import reconciler
from tests.reconciler import live


def list_tests(package: str, paths: list[str]) -> dict[str, set[str]]:
    """Names of tests, and of those that are marked as live, of the modules below a package."""
    found: dict[str, set[str]] = {"all": set(), "live": set()}
    for module in pkgutil.walk_packages(paths, f"{package}."):
        if module.ispkg or ".test_" not in module.name:
            continue
        for name, test in vars(importlib.import_module(module.name)).items():
            if name.startswith("test_") and callable(test):
                marked = any(mark.name == "live" for mark in getattr(test, "pytestmark", ()))
                for kind in ("all", "live") if marked else ("all",):
                    found[kind].add(name)
    return found


def test_scenes_that_are_marked_as_live_are_all_played_by_a_module_of_this_folder():
    marked = list_tests(reconciler.__name__, list(reconciler.__path__))["live"]
    played = list_tests(live.__name__, list(live.__path__))["all"]
    assert marked
    assert marked <= played
