"""Names under our prefixes that users write: where each has an effect, and which of them an unknown name was probably
meant to be.

Other programs may use the prefixes, too (other features of Kueue do), so a name that resembles none of these is not
reported.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from core import names
from core.names import (
    COMPLETIONS_EQUAL_PARALLELISM,
    ELASTIC_JOB,
    LEND_SPARES,
    MAX_EXEC_TIME_LABEL,
    MIN_PARALLELISM,
    PLACEMENT_PROFILE,
    POD_GROUP_FAST_ADMISSION,
    POD_GROUP_INDEX_LABEL,
    POD_GROUP_INDEX_LABEL_NAME,
    POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT,
    PODGROUP_PLACED_BY,
    PODGROUP_TOPOLOGY,
    PODSET_GROUP_NAME,
    PREFERRED_TOPOLOGY,
    PRIORITY_CLASS_LABEL,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY,
    RETRIABLE_IN_GROUP,
    SLICE_SIZE,
    SPARE_NODES,
    TOPOLOGY_ANNOTATIONS,
    TOPOLOGY_SPREADING,
    WORKLOAD_PREFERRED_TOPOLOGY,
    WORKLOAD_REQUIRED_TOPOLOGY,
)

OF_A_TEMPLATE = (*TOPOLOGY_ANNOTATIONS, SLICE_SIZE, PODSET_GROUP_NAME, SPARE_NODES, LEND_SPARES)
OF_THE_JOB = (PLACEMENT_PROFILE, WORKLOAD_REQUIRED_TOPOLOGY, WORKLOAD_PREFERRED_TOPOLOGY)
_OF_BATCH = (COMPLETIONS_EQUAL_PARALLELISM, MIN_PARALLELISM)  # of a batch/v1 Job alone
_ON_THE_JOB = (*OF_THE_JOB, PODGROUP_TOPOLOGY, PODGROUP_PLACED_BY, *_OF_BATCH)
GROUPED = ("Job", "JobSet", "MPIJob", "LeaderWorkerSet")  # kinds that read PODGROUP_TOPOLOGY (core.jobs.podgroup_annotation)
_ONLY_GROUPED = f"this annotation does nothing here; {', '.join(GROUPED[:-1])} and {GROUPED[-1]} read it"
_RESIZABLE = ("Job", "RayCluster", "RayJob", "RayService")  # kinds that read ELASTIC_JOB (core.jobs.contract.Resizable)
_ONLY_RESIZABLE = f"this annotation does nothing here; {', '.join(_RESIZABLE[:-1])} and {_RESIZABLE[-1]} are resized while they run"
_OF_A_POD = (POD_GROUP_TOTAL_COUNT, POD_GROUP_FAST_ADMISSION, POD_GROUP_INDEX_LABEL_NAME, RETRIABLE_IN_GROUP)
LABELS_OF_THE_JOB = (QUEUE_NAME_LABEL, PRIORITY_CLASS_LABEL, MAX_EXEC_TIME_LABEL)
LABELS = (*LABELS_OF_THE_JOB, POD_GROUP_INDEX_LABEL)
ANNOTATIONS = (*OF_A_TEMPLATE, TOPOLOGY_SPREADING, *_ON_THE_JOB, *_OF_A_POD)
DRAFTS: Mapping[str, str] = {
    "kueue.x-k8s.io/require-topology": REQUIRED_TOPOLOGY,
    "kueue.x-k8s.io/prefer-topology": PREFERRED_TOPOLOGY,
}
OWN, OWN_LABELS = "metadata.annotations", "metadata.labels"  # of the job itself
PODSET, WORKLOAD = "kueue.x-k8s.io/podset-", "topogate.dev/workload-"  # what annotations about placement begin with
_PREFIXES = (names.GROUP, "topogate.dev")
# What topogate itself writes is known as well: templates and pods carry it while they run.
_KNOWN = frozenset(value for value in vars(names).values() if isinstance(value, str)) | frozenset(DRAFTS)
_BY_REST = {name.partition("/")[2]: name for name in (*ANNOTATIONS, *LABELS, POD_GROUP_NAME)}
# Two letters of `queue-name`, or one more part behind `priority-class`; `cluster-queue` is further from all of them.
_LIKENESS = 0.8
MOST_UNKNOWN = 32
"""Unknown names of a map that are compared with those that are known: each takes 0.1 ms, and a user chooses how many there are."""


def is_of_template(name: str) -> bool:
    """Returns whether an annotation of this name, known or not, could count only on pod templates: it begins with `PODSET`, or is
    SPARE_NODES or LEND_SPARES."""
    return name.startswith(PODSET) or name in (SPARE_NODES, LEND_SPARES)


def find_meant(name: str) -> str | None:
    """Returns the known name that an unknown label or annotation was probably meant to be. None for a name without one of topogate's
    prefixes, a known one, and one that resembles none.

    The same name without regard to case and prefix comes first, then the most similar one. Kueue has no other names that begin with
    `podset-`: for one of these the nearest of `OF_A_TEMPLATE` is returned, if it is near at all.
    """
    prefix, _, rest = name.partition("/")
    if prefix not in _PREFIXES or name in _KNOWN:
        return None
    rest = rest.lower()
    for written in (rest, f"podset-{rest}"):
        if written in _BY_REST:
            return _BY_REST[written]
    for written in (rest, f"podset-{rest}"):
        if close := get_close_matches(written, _BY_REST, n=1, cutoff=_LIKENESS):
            return _BY_REST[close[0]]
    return next(iter(get_close_matches(name, OF_A_TEMPLATE, n=1)), None) if is_of_template(name) else None


def list_compared(written: Iterable[str]) -> list[str]:
    """Returns names of labels or annotations in alphabetical order, known and foreign ones all. Of unknown ones under topogate's prefixes
    it returns the first `MOST_UNKNOWN` only."""
    found, unknown = list[str](), 0
    for name in sorted(written):
        if name not in _KNOWN and name.partition("/")[0] in _PREFIXES:
            unknown += 1
            if unknown > MOST_UNKNOWN:
                continue
        found.append(name)
    return found


@dataclass(frozen=True, slots=True)
class Places:
    """Where else a job of some kind has annotations that count: on its pod templates, by the paths that users read.

    `pods_alone`: its pods are workloads by themselves, so that none on the job itself are read.
    """

    kind: str
    templates: Sequence[str] = ()
    pods_alone: bool = False

    def has_no_use_for(self, name: str) -> bool:
        """Returns whether an annotation of this name has no effect on a job of this kind itself. It could count only on pod templates
        (`is_of_template`), or it is one of `OF_THE_JOB` and each pod is a workload by itself. Other names, known or not: False."""
        return is_of_template(name) or (self.pods_alone and name in OF_THE_JOB)

    @property
    def shown(self) -> str:
        """Returns the pod templates as messages name them: the first path, and the number of the others. Without a path: "pod template"."""
        first, more = next(iter(self.templates), None), len(self.templates) - 1
        if first is None:
            return "pod template"
        return f"pod template ({first})" if not more else f"pod templates ({first} and {more} more)"


def warn_of_own(
    annotations: Mapping[str, Any], labels: Iterable[str], places: Places | None, unchanged: Collection[str] = ()
) -> Iterator[str]:
    """Yields a warning that begins with its field for each annotation or label of a job itself that has no effect there. Drafts come first,
    then annotations, then labels, each by name. Foreign names get none.

    `places` is None for a Pod, which has no pod templates beside itself. Of annotations values are not looked at. `unchanged` are names of
    annotations that the job has, too, and that get no warning.
    """
    yield from _warn_of_drafts(OWN, annotations)
    yield from _warn_of_own_annotations(list_compared(annotations), places, unchanged)
    yield from _warn_of_own_labels(list_compared(labels), places)


def _warn_of_own_annotations(written: Sequence[str], places: Places | None, unchanged: Collection[str]) -> Iterator[str]:
    """Warns of annotations on the job itself that no component reads there; the job would run without them, and the
    reason would not be visible."""
    for name in written:
        if places is not None and name in ANNOTATIONS and places.has_no_use_for(name):
            yield f"{OWN}[{name}]: has no effect on the {places.kind} itself: set it on the {places.shown}"
        elif name in _OF_BATCH and (places is None or places.kind != "Job"):
            yield f"{OWN}[{name}]: this annotation does nothing here; only a batch/v1 Job is started with fewer pods than it asks for"
        elif name == ELASTIC_JOB and (places is None or places.kind not in _RESIZABLE):
            yield f"{OWN}[{name}]: {_ONLY_RESIZABLE}"
        elif name == PODGROUP_TOPOLOGY and (places is None or places.kind not in GROUPED):
            yield f"{OWN}[{name}]: {_ONLY_GROUPED}"
        elif name == PODGROUP_PLACED_BY and PODGROUP_TOPOLOGY not in (*written, *unchanged):
            yield f"{OWN}[{name}]: this annotation does nothing without {PODGROUP_TOPOLOGY}"
        elif name in LABELS:
            yield f"{OWN}[{name}]: this is a label and does nothing as an annotation: set it in {OWN_LABELS}"
        elif places is not None or not is_of_template(name):  # a pod is judged as a template, too
            yield from _warn_of_unknown(OWN, name, None if places is None else _on_its_templates(places))


def _warn_of_own_labels(written: Sequence[str], places: Places | None) -> Iterator[str]:
    for name in written:
        if name in ANNOTATIONS:
            of_templates = places is not None and places.has_no_use_for(name)
            where = f"as an annotation on the {places.shown}" if places is not None and of_templates else f"in {OWN}"
            yield f"{OWN_LABELS}[{name}]: this is an annotation and does nothing as a label: set it {where}"
        else:
            yield from _warn_of_unknown(OWN_LABELS, name, None if places is None else _on_its_templates(places))


def _on_its_templates(places: Places) -> Callable[[str], str]:
    return lambda meant: ", on the pod template" if meant in ANNOTATIONS and places.has_no_use_for(meant) else ""


def _on_the_job_itself(meant: str) -> str:
    return ", on the job itself" if meant in _ON_THE_JOB + LABELS_OF_THE_JOB else ""


def _warn_of_unknown(path: str, name: str, where: Callable[[str], str] | None) -> Iterator[str]:
    """Warns of a name without an effect at `path`. `where` describes the other place in which a name has an effect."""
    what, other, others = ("label", "annotation", ANNOTATIONS) if path.endswith("labels") else ("annotation", "label", LABELS)
    meant = find_meant(name)
    if meant is not None:
        known = f"; did you mean {f'the {other} ' if meant in others else ''}{meant}{where(meant) if where else ''}?"
    elif is_of_template(name) and name not in ANNOTATIONS:
        known = ""
    else:
        return
    yield f"{path}[{name}]: this {what} is not known and does nothing{known}"


def _warn_of_drafts(path: str, annotations: Mapping[str, Any]) -> Iterator[str]:
    for name, today in DRAFTS.items():
        if name in annotations:
            yield f"{path}[{name}]: this name is of a draft and does nothing; on the pod template {today} is meant"


def warn_of_template(path: str, annotations: Mapping[str, str], labels: Mapping[str, str], *, is_job: bool) -> Iterator[str]:
    """Yields a warning that begins with its field for each name without an effect on a pod template. `path`: where its annotations are;
    those of labels are derived from it. `is_job`: each of its pods is a workload by itself.

    Where `path` is `OWN`, the template is a pod: labels and most annotations are left to `warn_of_own`.
    """
    is_own = path == OWN
    if not is_own:
        yield from _warn_of_drafts(path, annotations)
    for name in _ON_THE_JOB:
        if name in annotations and not is_job:
            yield f"{path}[{name}]: this annotation does nothing here; set it on the job itself"
    if is_job and not is_own and PODGROUP_TOPOLOGY in annotations:
        yield f"{path}[{PODGROUP_TOPOLOGY}]: {_ONLY_GROUPED}"
    where = None if is_job else _on_the_job_itself
    for name in list_compared(annotations):
        if not is_own and name in LABELS_OF_THE_JOB:
            yield f"{path}[{name}]: this is a label and does nothing as an annotation: set it in {OWN_LABELS} of the job itself"
        elif is_of_template(name) or not is_own:
            yield from _warn_of_unknown(path, name, where)
    of_labels = f"{path.removesuffix('annotations')}labels"
    for name in () if is_own else list_compared(labels):
        if name in ANNOTATIONS:
            place = f"{OWN} of the job itself" if name in _ON_THE_JOB and not is_job else path
            yield f"{of_labels}[{name}]: this is an annotation and does nothing as a label: set it in {place}"
        else:
            yield from _warn_of_unknown(of_labels, name, where)
