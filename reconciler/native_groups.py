"""kube-scheduler's own PodGroups, and the Workloads from whose templates they are made, where the API server serves them."""

from collections.abc import Callable

from core.plan import resources as r
from core.resource import Obj, Resource
from core.runtime.client import Client
from core.runtime.clock import Clock
from core.runtime.informer import Informer
from reconciler.served import Served
from reconciler.slim import named_native, without_managed_fields


class NativeGroups(Served):
    """Informers of both."""

    def __init__(self, client: Client, clock: Clock, make: Callable[[Resource, Callable[[Obj], Obj]], Informer]) -> None:
        self.pod_groups = make(r.NATIVE_POD_GROUPS, named_native)
        self.workloads = make(r.NATIVE_WORKLOADS, without_managed_fields)
        super().__init__(client, clock, (self.pod_groups, self.workloads))
