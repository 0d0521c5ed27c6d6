"""kube-scheduler's own PodGroups, and the Workloads with the templates from which they are made, where the API server
serves them."""

from collections.abc import Callable

from core.plan.steps import api_resources as r
from core.resource import Obj, Resource
from core.runtime.clock import Clock
from core.runtime.http.client import Client
from core.runtime.watch.informer import Informer
from reconciler.observe.served import Served
from reconciler.observe.slim import name_native, remove_managed_fields


class NativeGroups(Served):
    """Informers of both."""

    def __init__(self, client: Client, clock: Clock, make: Callable[[Resource, Callable[[Obj], Obj]], Informer]) -> None:
        self.pod_groups = make(r.NATIVE_POD_GROUPS, name_native)
        self.workloads = make(r.NATIVE_WORKLOADS, remove_managed_fields)
        super().__init__(client, clock, (self.pod_groups, self.workloads))
