"""All kinds of job that topogate brings along; others come from packages (entry points of group `topogate.integrations`)."""

import inspect
from collections.abc import Iterable
from typing import Any

from core.jobs.contract import JobKind, Reviewed
from core.jobs.kinds.appwrapper import AppWrapper
from core.jobs.kinds.jaxjob import JAXJob
from core.jobs.kinds.job import Job
from core.jobs.kinds.jobset import JobSet
from core.jobs.kinds.mpijob import MPIJob
from core.jobs.kinds.paddlejob import PaddleJob
from core.jobs.kinds.pytorchjob import PyTorchJob
from core.jobs.kinds.raycluster import RayCluster
from core.jobs.kinds.rayjob import RayJob
from core.jobs.kinds.rayservice import RayService
from core.jobs.kinds.sparkapplication import SparkApplication
from core.jobs.kinds.tfjob import TFJob
from core.jobs.kinds.trainjob import TrainJob
from core.jobs.kinds.xgboostjob import XGBoostJob
from core.jobs.templated import TemplatedKind

TEMPLATED: tuple[TemplatedKind, ...] = (
    Job(),
    JobSet(),
    MPIJob(),
    PyTorchJob(),
    TFJob(),
    XGBoostJob(),
    PaddleJob(),
    JAXJob(),
    RayCluster(),
    RayJob(),
    RayService(),
    SparkApplication(),
)
KINDS: tuple[JobKind, ...] = (*TEMPLATED, TrainJob(), AppWrapper(TEMPLATED))
INTEGRATIONS = "topogate.integrations"
_NEEDED = {
    name
    for part in (Reviewed, JobKind)
    for name in (*part.__annotations__, *(name for name, value in vars(part).items() if callable(value) and not name.startswith("_")))
}


class UnusableIntegration(ValueError):
    """What another package offers is no kind, or is described already."""


def _find_misfit(kind: Any, name: str) -> str:
    """Returns why a method of a kind cannot be called as the contract requires, empty where it can."""
    asked = getattr(JobKind, name, None)
    if not callable(asked):
        return ""
    parameters = list(inspect.signature(asked).parameters.values())[1:]  # less self
    try:
        inspect.signature(getattr(kind, name)).bind(
            *(parameter.name for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY)
        )
    except TypeError as error:
        return f"{name}({', '.join(map(str, parameters))}) is expected: {error}"
    return ""


def with_integrations(found: Iterable[Any]) -> tuple[JobKind, ...]:
    """Returns topogate's kinds, then those of other packages (`found`) in their order. Raises UnusableIntegration for the first that lacks
    an attribute or method of `JobKind`. So it does for a method that cannot take its parameters by position, and for kind and group of
    another."""
    kinds: dict[tuple[str, str], JobKind] = {(kind.group, kind.kind): kind for kind in KINDS}
    for kind in found:
        source = f"{type(kind).__module__}.{type(kind).__qualname__}"
        missing = sorted(name for name in _NEEDED if not hasattr(kind, name))
        if missing:
            raise UnusableIntegration(f"{source} is no kind of job (core.jobs.contract.JobKind): it has no {', '.join(missing)}")
        misfits = sorted(filter(None, (_find_misfit(kind, name) for name in _NEEDED)))
        if misfits:
            raise UnusableIntegration(f"{source} does not fit core.jobs.contract.JobKind: {'; '.join(misfits)}")
        if (kind.group, kind.kind) in kinds:
            raise UnusableIntegration(f"{kind.kind} of {kind.group or 'the core group'} is described twice: by {source}, too")
        kinds[kind.group, kind.kind] = kind
    return tuple(kinds.values())
