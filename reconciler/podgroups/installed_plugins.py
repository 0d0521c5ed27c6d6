"""Plugins of other packages, found by their entry points and tried out before anything begins. Mistakes in their
configuration are reported then, together with all its other mistakes. Nothing of them is imported here."""

import asyncio
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points

from core.api.files.mistakes import Mistake, build_path, find_nearest
from core.metric_names import RAISED, UNUSABLE
from core.model.plugin_choice import ENTRY_POINTS, LISTS, PATH, GroupPluginRules, Which
from reconciler.podgroups.plugin_process import Launch, PluginFailed, PluginProcess


def list_launches(rules: GroupPluginRules) -> Iterator[Launch]:
    """Yields the chosen plugins that are neither built in nor off (weight 0), in the order of the configuration. Of several with one name
    it is the first. Raises KeyError for one that is not installed."""
    found = find_installed()
    for which, one in rules.chosen:
        if not which.is_built_in and one.weight:
            yield Launch(which, found[one.name][0].value, one.arguments)


def find_installed() -> dict[str, list[EntryPoint]]:
    """Returns the entry points of installed plugins by name: one each, unless several packages use the same name."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: (entry.name, entry.value)):
        found.setdefault(entry.name, []).append(entry)
    return found


def judge(rules: GroupPluginRules) -> tuple[list[Mistake], list[str]]:
    """Returns mistakes in the configuration of installed plugins, and warnings (texts) of plugins that cannot be tried now. Each plugin is
    loaded in a process of its own, but only if no name is used by several packages. Raises KeyError for a plugin that is not installed.

    Runs an event loop of its own, for a second or two where there are any."""
    if all(which.is_built_in for which, _ in rules.chosen):
        return [], []  # then what is installed is not even looked for
    wrong = list(_list_ambiguous(rules, find_installed()))
    if wrong or not any(list_launches(rules)):
        return wrong, []
    return asyncio.run(_try_out(rules))


def _list_ambiguous(rules: GroupPluginRules, found: dict[str, list[EntryPoint]]) -> Iterator[Mistake]:
    for which, where in _list_places(rules):
        entries = [] if which.is_built_in else found.get(which.name, [])
        if len(entries) > 1:
            owners = ", ".join(f"{entry.value} of {entry.dist.name}" if entry.dist is not None else entry.value for entry in entries)
            yield Mistake(build_path(where, "name"), f"{which.name} is what several plugins are called: {owners}")


async def _try_out(rules: GroupPluginRules) -> tuple[list[Mistake], list[str]]:
    """Each in a process of its own, all at once."""
    places = dict(_list_places(rules))
    found = await asyncio.gather(*(_try(launch, rules, places[launch.which]) for launch in list_launches(rules)))
    return [mistake for mistakes, _ in found for mistake in mistakes], [warning for _, warnings in found for warning in warnings]


async def _try(launch: Launch, rules: GroupPluginRules, where: str) -> tuple[list[Mistake], list[str]]:
    process, subject = PluginProcess(launch, rules.limits), f"plugin {launch.which.name} ({launch.value})"
    try:
        await process.load()
    except PluginFailed as error:
        if error.kind == UNUSABLE:
            return list(_list_refusals(where, subject, launch.which.name, error)), []
        if error.kind == RAISED:
            return [Mistake(where, f"{subject} cannot be loaded: {error.detail.partition(chr(10))[0]}")], []
        return [], [f"{where}: {subject}: {error}; groups are placed without it until it can be loaded"]
    finally:
        await process.close()
    return [], []


def _list_refusals(where: str, subject: str, name: str, error: PluginFailed) -> Iterator[Mistake]:
    known = [str(one) for one in error.reply.get("known", ())]
    for argument in error.reply.get("unknown", ()):
        near = find_nearest(str(argument), known)
        meant = f"did you mean {near}?" if near else f"{', '.join(known)} are known here" if known else f"{name} takes none"
        yield Mistake(build_path(where, "arguments", str(argument)), f"unknown argument; {meant}")
    for argument in error.reply.get("missing", ()):
        yield Mistake(build_path(where, "arguments", str(argument)), f"it is missing; {name} has to be given it")
    if error.detail:
        yield Mistake(where, f"{subject} cannot be used: {error.detail}")


def _list_places(rules: GroupPluginRules) -> Iterator[tuple[Which, str]]:
    for role, chosen in rules.by_role.items():
        yield from ((Which(role, one.name), build_path(PATH, LISTS[role], index)) for index, one in enumerate(chosen))
