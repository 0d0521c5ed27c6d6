"""A short text about where a workload's pods are, for messages about its last admission and its next."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from core.model.admission import Admission
from core.model.quantity import show_count
from core.names import HOSTNAME_LABEL
from core.state.cluster import ClusterState

_SHOWN = 3  # nodes, or domains, that a sentence names
Path = tuple[str, ...]


def describe_place(state: ClusterState, admission: Admission) -> str:
    """Returns, as a text, the lowest domain above the assigned ones that holds all pods of an admission. Without one it names the domains
    of the highest level. In brackets are the assigned domains (nodes as a rule). Of several 3 are named at most, and how many more there
    are.

    Empty where nothing is placed by topology. The assigned ones alone are named where no level is above, or none of them exists any more.
    Those that are gone do not count for the domain above.
    """
    places = state.find_places(admission.pod_sets)
    names, paths, levels = dict[str, None](), dict[Path, None](), Path()
    for given in admission.pod_sets:
        if given.assignment is None:
            continue
        view = state.get_view(state.find_topology_flavor(given.flavors.values()) or "")
        levels = levels or (tuple(view.topology.levels) if view is not None else ())
        for index, domain in enumerate(given.assignment.domains):
            names[domain.values[-1]] = None
            path = places.list_level_values(given, index)
            if len(path) == len(levels):
                paths[path] = None
    if not names:
        return ""
    here = _format_list(list(names), _find_lowest_level(admission))
    above = list(dict.fromkeys(path[:-1] for path in paths))
    if not above or not above[0]:
        return here
    shared = _find_shared_path(above)
    if shared:
        return f"{levels[len(shared) - 1]} {'/'.join(shared)} ({here})"
    return f"{_format_list(list(dict.fromkeys(path[0] for path in above)), levels[0])} ({here})"


def describe_move(before: Admission, after: Admission, failed: Iterable[str] = (), healthy: Collection[str] = ()) -> str:
    """Returns how many pods get another place, from where and to where, and why. Their nodes (`failed`, by name) were lost or, those that
    are `healthy`, took them no longer; without any, the pods were stuck. Empty where no pod leaves a domain or none comes to one."""
    old, new = _count_domains(before), _count_domains(after)
    left, taken = old - new, new - old
    if not left or not taken:
        return ""
    what = _find_lowest_level(after)
    names = _name_domains((*left, *taken))
    others = "; the others stay" if new.total() > taken.total() else ""
    lost, full = (sorted(name for name in failed if (name in healthy) is is_up) for is_up in (False, True))
    reasons = [f"lost: {_format_list(lost, 'node')}"] if lost else []
    reasons += [f"{_format_list(full, 'node')} did not take them"] if full else []
    why = "; ".join(reasons) or "they were stuck"
    go = "goes" if taken.total() == 1 else "go"
    return (
        f"{show_count(taken.total(), 'pod')} of {_format_list([names[one] for one in left], what)} {go} to "
        f"{_format_list([names[one] for one in taken], what)}{others} ({why})"
    )


def _count_domains(admission: Admission) -> Counter[tuple[str, ...]]:
    """Pods by the values of the lowest domain that they are assigned to: racks of two blocks may have one name."""
    found: Counter[tuple[str, ...]] = Counter()
    for given in admission.pod_sets:
        for domain in given.assignment.domains if given.assignment is not None else ():
            found[domain.values] += domain.count
    return found


def _name_domains(domains: Collection[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """Their last values, or all of them where two domains have one last value."""
    are_clear = len({domain[-1] for domain in domains}) == len(set(domains))
    return {domain: domain[-1] if are_clear else "/".join(domain) for domain in domains}


def _find_lowest_level(admission: Admission) -> str:
    """What the domains are called that pods are assigned to."""
    level = next((given.assignment.levels[-1] for given in admission.pod_sets if given.assignment is not None), HOSTNAME_LABEL)
    return "node" if level == HOSTNAME_LABEL else level


def _format_list(names: Sequence[str], what: str) -> str:
    """Things by name; of many the first few."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{what if len(names) == 1 else f'{what}s'} {', '.join(names[:_SHOWN])}{more}"


def _find_shared_path(paths: Sequence[Path]) -> Path:
    """What all of them begin with."""
    shared = []
    for values in zip(*paths, strict=True):
        if len(set(values)) > 1:
            break
        shared.append(values[0])
    return tuple(shared)
