"""A priority class that changes: workloads that exist keep the priority that they have (docs/users.md)."""

from __future__ import annotations

from typing import Any

from core.names import PRIORITY_CLASS_LABEL
from sim.world import World
from tests.sim.test_world import build_job, open_world

Json = dict[str, Any]
KUEUE = "kueue.x-k8s.io"


def make_class(name: str, value: int) -> Json:
    return {"apiVersion": f"{KUEUE}/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}


def make_class_of_pods(name: str, value: int, **fields: Any) -> Json:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value, **fields}


def open_preempting_world() -> World:
    """A queue with room for one of two jobs, which preempts workloads of lower priority."""
    world = open_world(1)
    [queue] = world.objects(KUEUE, "clusterqueues")
    world.patch(KUEUE, "clusterqueues", queue, {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}})
    world.apply(make_class("normal", 1))
    return world


def submit(world: World, name: str, class_name: str = "", class_of_pods: str = "") -> None:
    made = build_job(name, 4, seconds=None)
    if class_name:
        made["metadata"]["labels"][PRIORITY_CLASS_LABEL] = class_name
    if class_of_pods:
        made["spec"]["template"]["spec"]["priorityClassName"] = class_of_pods
    world.apply(made)
    world.run_for(5)


def list_priorities(world: World) -> dict[str, int]:
    return {
        each["metadata"]["ownerReferences"][0]["name"]: int(each["spec"].get("priority") or 0) for each in world.objects(KUEUE, "workloads")
    }


def list_admitted(world: World) -> list[str]:
    return [
        each["metadata"]["ownerReferences"][0]["name"]
        for each in world.objects(KUEUE, "workloads")
        if any(condition["type"] == "Admitted" and condition["status"] == "True" for condition in each["status"]["conditions"])
    ]


def restart(world: World) -> None:
    for replica in world.replicas:
        replica.kill()
    world.run_for(120)


def touch(world: World, name: str) -> None:
    """Changes a job in a way that asks for nothing else."""
    [found] = [each for each in world.objects("batch", "jobs") if each["metadata"]["name"] == name]
    world.patch("batch", "jobs", found, {"metadata": {"annotations": {"example.com/touched": str(world.loop.time())}}})
    world.run_for(10)


def test_changed_value_of_a_class_preempts_no_older_job_of_the_class():
    """Found by an attack: the job that waited got the new value at the next restart, and the one that ran was preempted by its equal."""
    world = open_preempting_world()
    submit(world, "runs", "normal")
    submit(world, "waits", "normal")
    assert list_admitted(world) == ["runs"]
    world.patch(KUEUE, "workloadpriorityclasses", make_class("normal", 1), {"value": 1000})
    world.run_for(60)
    touch(world, "waits")
    restart(world)
    assert list_admitted(world) == ["runs"]
    assert list_priorities(world) == {"runs": 1, "waits": 1}
    world.close()


def name_class(world: World, job: str, name: str) -> None:
    [found] = [each for each in world.objects("batch", "jobs") if each["metadata"]["name"] == job]
    world.patch("batch", "jobs", found, {"metadata": {"labels": {PRIORITY_CLASS_LABEL: name}}})


def test_class_with_another_value_counts_for_a_job_that_names_it_later():
    world = open_preempting_world()
    world.apply(make_class("other", 1))
    submit(world, "runs", "normal")
    submit(world, "waits", "normal")
    world.patch(KUEUE, "workloadpriorityclasses", make_class("other", 1), {"value": 5})
    name_class(world, "waits", "other")
    world.run_for(60)
    assert list_priorities(world) == {"runs": 1, "waits": 5}
    assert list_admitted(world) == ["waits"]
    world.close()


def test_class_of_equal_value_is_referred_to():
    """Else a later value of the class that the job named before would count."""
    world = open_preempting_world()
    world.apply(make_class("other", 1))
    submit(world, "runs", "normal")
    submit(world, "waits", "normal")
    name_class(world, "waits", "other")
    world.run_for(10)
    world.patch(KUEUE, "workloadpriorityclasses", make_class("other", 1), {"value": 5})
    restart(world)
    names = {each["spec"]["priorityClassRef"]["name"] for each in world.objects(KUEUE, "workloads")}
    assert (names, list_priorities(world)) == ({"normal", "other"}, {"runs": 1, "waits": 1})
    world.close()


def test_deleted_class_leaves_waiting_job_its_priority():
    world = open_preempting_world()
    submit(world, "runs", "normal")
    submit(world, "waits", "normal")
    world.delete(make_class("normal", 1))
    touch(world, "waits")
    assert list_priorities(world) == {"runs": 1, "waits": 1}
    world.apply(make_class("normal", 7))
    restart(world)
    assert list_priorities(world) == {"runs": 1, "waits": 1}
    world.close()


def test_changed_class_of_pods_is_not_followed():
    world = open_preempting_world()
    world.apply(make_class_of_pods("of-pods", 3))
    submit(world, "runs", class_of_pods="of-pods")
    submit(world, "waits", class_of_pods="of-pods")
    world.delete(make_class_of_pods("of-pods", 3))
    world.apply(make_class_of_pods("of-pods", 900))
    touch(world, "waits")
    restart(world)
    assert list_priorities(world) == {"runs": 3, "waits": 3}
    world.close()


def test_new_default_class_of_the_cluster_is_not_followed():
    world = open_preempting_world()
    submit(world, "runs")
    submit(world, "waits")
    world.apply(make_class_of_pods("default", 50, globalDefault=True))
    touch(world, "waits")
    restart(world)
    assert list_priorities(world) == {"runs": 0, "waits": 0}
    world.delete(make_class_of_pods("default", 50))
    world.close()
