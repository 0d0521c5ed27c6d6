"""The block `topogate.podGroups.plugins`: which plugins place groups of pods, in what order, with what weights, arguments and limits.

Names of other packages' plugins are judged where these are installed (`InstalledPlugins`), their arguments by
`reconciler.podgroups.installed_plugins`: the
webhook reads the same file and need not have them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, ValidationInfo, field_validator

from core.api.files.configuration_fields import AtLeastOne, Pause, ResourceName
from core.api.files.mistakes import InvalidFile, Mistake, build_path, find_nearest, format_choice
from core.api.files.strict import Says, Strict, match_pattern, refuse, refuse_inside
from core.model.duration import show_duration
from core.model.plugin_choice import (
    BUILT_IN,
    GENERATE,
    LISTS,
    SCORE,
    SMALLEST_MEMORY,
    GroupPluginRules,
    PluginChoice,
    PluginLimits,
)
from core.model.quantity import LARGEST, parse_quantity

MOST_VALUES = 10_000  # in the arguments of a plugin
_HEAVIEST = 1000


def _parse_weight(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _HEAVIEST:
        return float(value)
    raise refuse(f"a number from 0 (off) to {_HEAVIEST} is expected")


def _parse_memory(value: object) -> int:
    if isinstance(value, str | int) and not isinstance(value, bool):
        try:
            if SMALLEST_MEMORY <= (amount := parse_quantity(value)) < LARGEST:
                return amount
        except ValueError:
            pass
    raise refuse(f'a quantity such as "512Mi", of {SMALLEST_MEMORY >> 20}Mi or more, is expected')


def _validate_plain(value: dict[str, Any]) -> dict[str, Any]:
    """It goes to another process as JSON, where each alias of the file is written out."""
    try:
        is_small = _count_values(value, {}) <= MOST_VALUES
        if is_small:
            json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise refuse("text, numbers, true, false, null, lists and objects of these are expected") from None
    if not is_small:
        raise refuse(f"at most {MOST_VALUES} values are expected")
    return value


def _count_values(value: Any, known: dict[int, int]) -> int:
    """Values inside a value, itself included. Raises RecursionError for one that holds itself."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = 1 + sum(_count_values(inner, known) for inner in (value.values() if isinstance(value, dict) else value))
    return known[id(value)]


Weight = Annotated[float, BeforeValidator(_parse_weight)]
Arguments = Annotated[dict[str, Any], AfterValidator(_validate_plain)]
Name = Annotated[str, match_pattern(r"[A-Za-z0-9][-A-Za-z0-9_. ]*", "the name of a plugin", longest=63)]


@dataclass(frozen=True, slots=True)
class InstalledPlugins:
    """Names of plugins of other packages; None: they are not known here."""

    plugins: Collection[str] | None = None


class BinPackingArguments(Strict):
    """Which resources count for how full a placement is, and how much; without it all that pods ask for, alike."""

    resources: dict[ResourceName, Weight] | None = None


ARGUMENTS: dict[str, type[Strict]] = {"BinPacking": BinPackingArguments}


class Entry(Strict):
    """A plugin that is on."""

    role: ClassVar[str]

    name: Name
    arguments: Arguments | None = None

    @field_validator("name")
    @classmethod
    def _validate_role(cls, name: str, info: ValidationInfo) -> str:
        other = next((role for role, built_in in BUILT_IN.items() if role != cls.role and name in built_in), None)
        if other is not None:
            raise refuse(f"it belongs to the {LISTS[other]}")
        installed = info.context.plugins if isinstance(info.context, InstalledPlugins) else None
        if installed is not None and name not in (known := (*BUILT_IN[cls.role], *sorted(installed))):
            near = find_nearest(name, known)
            raise refuse(f"no such plugin is built in or installed; {f'did you mean {near}?' if near else f'use {format_choice(known)}'}")
        return name

    @field_validator("arguments")
    @classmethod
    def _validate_arguments(cls, given: dict[str, Any] | None, info: ValidationInfo) -> dict[str, Any] | None:
        name = info.data.get("name")
        if name in BUILT_IN[cls.role]:
            mistakes = list(_list_wrong_arguments(name, given or {}))
            if mistakes:
                raise refuse_inside(mistakes)
        return given


class Generator(Entry):
    """One that parts nodes into placements."""

    role: ClassVar[str] = GENERATE


class Scorer(Entry):
    """A plugin with scores that count `weight` times."""

    role: ClassVar[str] = SCORE

    weight: Weight | None = None


class PodGroupPlugins(Strict):
    """A list that is given stands for the whole: what is not in it is off."""

    generators: Annotated[
        list[Generator] | None,
        Says(
            "the plugins that part nodes into placements for groups of pods ([podgroups.md](podgroups.md)), "
            "in this order: a list of `name` and `arguments`; it stands for the whole: what is not in it is "
            "off",
            ", ".join(one.name for one in GroupPluginRules().generators),
        ),
    ] = None
    scorers: Annotated[
        list[Scorer] | None,
        Says(
            "those that say which placement is the best: `name`, `weight` (1; from 0, which is off, to 1000), `arguments`; likewise",
            ", ".join(one.name for one in GroupPluginRules().scorers),
        ),
    ] = None
    timeout: Annotated[
        Pause | None,
        Says(
            "how long each plugin of another package may take for an answer ([adding-a-plugin.md](development/adding-a-plugin.md))",
            show_duration(PluginLimits().call_s),
        ),
    ] = None
    memory: Annotated[
        Annotated[int, BeforeValidator(_parse_memory)] | None,
        Says("how much memory its process may have", f"{PluginLimits().memory_bytes >> 20}Mi"),
    ] = None
    feasible_limit: Annotated[
        AtLeastOne | None,
        Says(
            "so many placements that have room for a group are enough to choose from, of those of the lowest "
            "rank the first by name; fewer are faster to decide on",
            "all",
        ),
    ] = None

    @field_validator("generators", "scorers")
    @classmethod
    def _validate_unique(cls, given: list[Any] | None) -> list[Any] | None:
        names = [entry.name for entry in given or ()]
        twice = [index for index, name in enumerate(names) if name in names[:index]]
        if twice:
            raise refuse_inside(Mistake(f"[{index}].name", f"{names[index]} is given twice; leave one out") for index in twice)
        return given

    @property
    def rules(self) -> GroupPluginRules:
        """Returns the block as values (time limit in seconds, memory in bytes), with defaults for what is not given. A list that is
        given replaces the default list, also an empty one; a scorer without a weight has 1."""
        usual, limits = GroupPluginRules(), PluginLimits()
        generators = usual.generators if self.generators is None else tuple(_build_choice(one) for one in self.generators)
        scorers = usual.scorers if self.scorers is None else tuple(_build_choice(one, one.weight) for one in self.scorers)
        memory = limits.memory_bytes if self.memory is None else self.memory
        return GroupPluginRules(generators, scorers, PluginLimits(self.timeout or limits.call_s, memory), self.feasible_limit)


def _build_choice(entry: Entry, weight: float | None = None) -> PluginChoice:
    return PluginChoice(entry.name, 1.0 if weight is None else weight, entry.arguments or {})


def _list_wrong_arguments(name: str, given: dict[str, Any]) -> Iterator[Mistake]:
    model = ARGUMENTS.get(name)
    if model is None:
        yield from (Mistake(build_path("", argument), f"unknown argument; {name} takes none") for argument in given)
        return
    try:
        model.read(given)
    except InvalidFile as error:
        yield from error.mistakes
