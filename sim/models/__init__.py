"""Small models of what else writes in a cluster: controllers, kube-scheduler, kubelets, and the garbage collectors.

Each looks at what has changed a moment later, and writes through the API server as its real one does. What they do is what topogate can see
of the real ones, no more.
"""

from sim.models.base import Model
from sim.models.jobs import JobController
from sim.models.kubelets import Kubelets, PodGarbageCollector
from sim.models.owners import GarbageCollector
from sim.models.scheduler import Scheduler

MODELS: tuple[type[Model], ...] = (GarbageCollector, JobController, Scheduler, Kubelets, PodGarbageCollector)
