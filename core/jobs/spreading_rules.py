"""The rules for the annotation TOPOLOGY_SPREADING of pod templates, of jobs and of Workloads (gate SPREADING)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from core.jobs.contract import ErrorType, FieldError
from core.model.topology_spreading import Spreading, parse_spreading
from core.names import REQUIRED_TOPOLOGY, TOPOLOGY_SPREADING

_SHOWN = 63  # characters of a value


@dataclass(frozen=True, slots=True)
class SpreadTemplate:
    """A pod template to be judged: where its annotations are, the value of the annotation, its required level and its group."""

    path: str
    text: object
    required: object
    group: object

    @property
    def field(self) -> str:
        """Returns the path of the annotation."""
        return f"{self.path}[{TOPOLOGY_SPREADING}]"


def validate_spreading(templates: Sequence[SpreadTemplate], before: Sequence[SpreadTemplate], *, at_all: bool) -> Iterator[FieldError]:
    """Yields the errors of templates that are new or have another annotation or required level than `before`, which are matched by their
    paths. Members of a group that do not ask for the same are reported where one of them has changed: `at_all` of them, else at those that
    differ from the first."""
    old = {template.path: template for template in before}
    changed = {template.path for template in templates if old.get(template.path) != template}
    parsed: dict[str, Spreading | None] = {}
    unreadable: set[str] = set()
    groups: dict[str, list[SpreadTemplate]] = {}
    for template in templates:
        if isinstance(template.group, str) and template.group:
            groups.setdefault(template.group, []).append(template)
        if template.text is None:
            parsed[template.path] = None
            continue
        if template.path in changed and not template.required:
            accepted = f"may not stand without {REQUIRED_TOPOLOGY}, which names the level of the one domain that the pods share"
            yield FieldError(ErrorType.FORBIDDEN, template.field, None, accepted)
        parsed[template.path], mistakes = parse_spreading(template.text)
        if mistakes:
            unreadable.add(template.path)
        for mistake in mistakes if template.path in changed else ():
            yield FieldError(ErrorType[mistake.type], f"{template.field}{mistake.field}", mistake.value, mistake.accepted)
    for name, members in groups.items():
        paths = {member.path for member in members}
        first = parsed[members[0].path]
        differing = [member for member in members if parsed[member.path] != first]
        if differing and paths & changed and not paths & unreadable:
            accepted = f"all pod templates of group {name[:_SHOWN]!r} must have the same rules of topology spreading, or none of them"
            for member in members if at_all else differing:
                yield FieldError(ErrorType.INVALID, member.field, None, accepted)
