"""All kinds of job that topogate brings along; others come from packages (entry points of group `topogate.integrations`)."""

from collections.abc import Iterable

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


def with_integrations(found: Iterable[JobKind]) -> tuple[JobKind, ...]:
    """Our kinds and those of other packages. Raises ValueError where two describe one kind."""
    kinds = {(kind.group, kind.kind): kind for kind in KINDS}
    for kind in found:
        if (kind.group, kind.kind) in kinds:
            raise ValueError(f"{kind.kind} of {kind.group or 'the core group'} is described twice: by {type(kind).__module__}, too")
        kinds[kind.group, kind.kind] = kind
    return tuple(kinds.values())
