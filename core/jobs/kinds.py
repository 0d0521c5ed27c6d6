"""All kinds of job that topogate brings along; others come from packages (entry points of group `topogate.integrations`)."""

from collections.abc import Iterable
from typing import Any

from core.jobs.appwrapper import AppWrapper
from core.jobs.contract import JobKind
from core.jobs.jaxjob import JAXJob
from core.jobs.job import Job
from core.jobs.jobset import JobSet
from core.jobs.mpijob import MPIJob
from core.jobs.paddlejob import PaddleJob
from core.jobs.pytorchjob import PyTorchJob
from core.jobs.raycluster import RayCluster
from core.jobs.rayjob import RayJob
from core.jobs.rayservice import RayService
from core.jobs.sparkapplication import SparkApplication
from core.jobs.templated import TemplatedKind
from core.jobs.tfjob import TFJob
from core.jobs.trainjob import TrainJob
from core.jobs.xgboostjob import XGBoostJob

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
_NEEDED = {*JobKind.__annotations__, *(name for name, value in vars(JobKind).items() if callable(value) and not name.startswith("_"))}


class UnusableIntegration(ValueError):
    """What another package offers is no kind, or is described already."""


def with_integrations(found: Iterable[Any]) -> tuple[JobKind, ...]:
    """Our kinds and those of other packages. Raises UnusableIntegration."""
    kinds: dict[tuple[str, str], JobKind] = {(kind.group, kind.kind): kind for kind in KINDS}
    for kind in found:
        source = f"{type(kind).__module__}.{type(kind).__qualname__}"
        missing = sorted(name for name in _NEEDED if not hasattr(kind, name))
        if missing:
            raise UnusableIntegration(f"{source} is no kind of job (core.jobs.contract.JobKind): it has no {', '.join(missing)}")
        if (kind.group, kind.kind) in kinds:
            raise UnusableIntegration(f"{kind.kind} of {kind.group or 'the core group'} is described twice: by {source}, too")
        kinds[kind.group, kind.kind] = kind
    return tuple(kinds.values())
