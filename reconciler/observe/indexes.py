"""Indexes of the stores of observed objects, and the keys of these indexes."""

from core.names import HOSTNAME_LABEL, TOPOLOGY_GATE
from core.plan.pods.pod_units import find_pod_unit, find_workload_unit
from core.podgroups.members import group_of
from core.resource import Obj
from core.runtime.watch.store import Store
from core.state.facts import find_controller, find_family, find_pod_family
from core.state.owners import show_owner


def add_indexes(pods: Store, workloads: Store, nodes: Store, provisioning_requests: Store) -> None:
    """Adds all indexes that this package uses. Pods get `workload`, `podgroup`, `owner`, `unmarked` and `unit`; workloads get `unit`,
    `controller` and `family`. Nodes get `hostname`, and ProvisioningRequests `controller`. Raises ValueError where a store has one of these
    already."""
    provisioning_requests.add_index("controller", _find_controller)
    nodes.add_index("hostname", lambda node: [get_hostname(node)])
    pods.add_index("workload", list_workloads_of_pod)
    pods.add_index("podgroup", _find_group)
    pods.add_index("owner", _find_controller)
    pods.add_index("unmarked", lambda pod: _find_controller(pod) if is_unmarked(pod) else [])
    pods.add_index("unit", _find_unit_of_pod)
    workloads.add_index("unit", _find_unit_of_workload)
    workloads.add_index("controller", _find_controller)
    workloads.add_index("family", lambda workload: [find_family(workload)])


def find_owned(store: Store, owner: Obj) -> list[Obj]:
    """Returns the Workloads or ProvisioningRequests of `store` that an object controls, in the order of their keys."""
    return store.list_by_index("controller", show_as_owner(owner))


def show_as_owner(obj: Obj) -> str:
    """Returns the key by which indexes name an object as the owner of others: its namespace and uid."""
    return show_owner(obj["metadata"].get("namespace"), obj["metadata"]["uid"])


def is_gated(pod: Obj) -> bool:
    """Whether a pod has the topology gate: it waits for its domain."""
    return any(gate.get("name") == TOPOLOGY_GATE for gate in (pod.get("spec") or {}).get("schedulingGates") or ())


def is_unmarked(pod: Obj) -> bool:
    """Whether a pod has the topology gate, names no workload and is not being deleted: it would wait for ever."""
    return is_gated(pod) and not pod["metadata"].get("deletionTimestamp") and not list_workloads_of_pod(pod)


def list_workloads_of_pod(pod: Obj) -> list[str]:
    """Returns the key (namespace/name) of the workload that a pod names, of an elastic job that of its family, alone in a list. It need not
    exist. Empty where the pod names none."""
    name = find_pod_family(pod)
    return [f"{pod['metadata']['namespace']}/{name}"] if name else []


def get_hostname(node: Obj) -> str:
    """Returns the name by which assignments name a node: its hostname label, else its own name."""
    metadata = node["metadata"]
    return str((metadata.get("labels") or {}).get(HOSTNAME_LABEL) or metadata["name"])


def _find_group(pod: Obj) -> list[str]:
    group = group_of(pod)
    return [str(group)] if group is not None else []


def _find_unit_of_pod(pod: Obj) -> list[str]:
    unit = find_pod_unit(pod)
    return [str(unit)] if unit is not None else []


def _find_unit_of_workload(workload: Obj) -> list[str]:
    unit = find_workload_unit(workload)
    return [str(unit)] if unit is not None else []


def _find_controller(obj: Obj) -> list[str]:
    owner = find_controller(obj)
    return [show_owner(obj["metadata"].get("namespace"), owner["uid"])] if owner is not None else []
