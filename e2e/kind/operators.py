"""From where the operators come in a kind cluster, and what they must be told so that topogate can queue what they run.

Which there are, of which version and for which kinds, `e2e.operators.catalogue` says. None has been run here: `docs/development/kind.md`
says where each address was seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from e2e.operators import catalogue
from e2e.operators.objects import RAY_IMAGE, SPARK_IMAGE

_CATALOGUE = {operator.name: operator for operator in catalogue.OPERATORS}
_VERSION = {name: operator.version.removeprefix("v") for name, operator in _CATALOGUE.items()}


@dataclass(frozen=True)
class Manifests:
    """A file or a kustomization at an address, and patches on it, as a kustomization has them."""

    address: str
    patches: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Chart:
    """A Helm chart of a repository, or with an address of its own (`oci://`)."""

    name: str
    version: str
    namespace: str
    repository: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Operator:
    """`images` are those of its pods that are too large to be pulled while a scene waits."""

    name: str
    source: Manifests | Chart
    crds: tuple[str, ...]
    deployments: tuple[tuple[str, str], ...]  # namespace, name
    images: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        return _VERSION[self.name]

    @property
    def kinds(self) -> tuple[str, ...]:
        return _CATALOGUE[self.name].kinds

    @property
    def needs(self) -> tuple[str, ...]:
        """Operators that it is of no use without; a chart brings its other parts."""
        return tuple(name for name in _CATALOGUE[self.name].needs if _CATALOGUE[name].kinds)


# Two operators bring a kind MPIJob, of different versions; the one of MPI operator is topogate's.
_NO_MPI_CRD = {
    "target": {"kind": "CustomResourceDefinition", "name": "mpijobs.kubeflow.org"},
    "patch": "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n"
    "metadata:\n  name: mpijobs.kubeflow.org\n$patch: delete\n",
}
_NO_MPI_CONTROLLER = {
    "target": {"kind": "Deployment", "name": "training-operator"},
    "patch": """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: training-operator
spec:
  template:
    spec:
      containers:
      - name: training-operator
        args:
        - --enable-scheme=pytorchjob
        - --enable-scheme=tfjob
        - --enable-scheme=xgboostjob
        - --enable-scheme=paddlejob
        - --enable-scheme=jaxjob
""",
}
# It has Kueue's job reconciler inside, which would suspend AppWrappers, with or without a queue (manageJobsWithoutQueueName),
# and make Workloads of its own for them.
_NO_QUEUEING = {
    "target": {"kind": "ConfigMap", "name": "appwrapper-operator-config"},
    "patch": """
apiVersion: v1
kind: ConfigMap
metadata:
  name: appwrapper-operator-config
data:
  config.yaml: |
    appwrapper:
      enableKueueIntegrations: false
      kueueJobReconciller:
        manageJobsWithoutQueueName: false
    controllerManager:
      health:
        bindAddress: ":8081"
      metrics:
        bindAddress: "127.0.0.1:8443"
      leaderElection: true
""",
}

OPERATORS = (
    Operator(
        "jobset",
        Manifests(f"https://github.com/kubernetes-sigs/jobset/releases/download/v{_VERSION['jobset']}/manifests.yaml"),
        ("jobsets.jobset.x-k8s.io",),
        (("jobset-system", "jobset-controller-manager"),),
    ),
    Operator(
        "lws",
        Manifests(f"https://github.com/kubernetes-sigs/lws/releases/download/v{_VERSION['lws']}/manifests.yaml"),
        ("leaderworkersets.leaderworkerset.x-k8s.io",),
        (("lws-system", "lws-controller-manager"),),
    ),
    Operator(
        "mpi-operator",
        # Up to 0.7.0 it does not hand changes of the launcher on when a job is resumed (kubeflow/mpi-operator#770).
        Manifests(f"https://raw.githubusercontent.com/kubeflow/mpi-operator/v{_VERSION['mpi-operator']}/deploy/v2beta1/mpi-operator.yaml"),
        ("mpijobs.kubeflow.org",),
        (("mpi-operator", "mpi-operator"),),
    ),
    Operator(
        "training-operator",
        Manifests(
            f"https://github.com/kubeflow/training-operator.git/manifests/overlays/standalone?ref=v{_VERSION['training-operator']}",
            (_NO_MPI_CRD, _NO_MPI_CONTROLLER),
        ),
        tuple(f"{plural}.kubeflow.org" for plural in ("pytorchjobs", "tfjobs", "xgboostjobs", "paddlejobs", "jaxjobs")),
        (("kubeflow", "training-operator"),),
    ),
    Operator(
        "trainer",
        # runtimePatches since 2.2; 2.3 merges them as strategic merge patches do (kubernetes-sigs/kueue#14504).
        Chart(
            "oci://ghcr.io/kubeflow/charts/kubeflow-trainer",
            _VERSION["trainer"],
            "kubeflow-system",
            values={"jobset": {"install": False}},  # one JobSet controller in a cluster, and that is the one above
        ),
        ("trainjobs.trainer.kubeflow.org", "clustertrainingruntimes.trainer.kubeflow.org", "trainingruntimes.trainer.kubeflow.org"),
        (("kubeflow-system", "kubeflow-trainer-controller-manager"),),
    ),
    Operator(
        "kuberay",
        # 1.7 gives RayService a suspension of its own, beside that of its cluster (kubernetes-sigs/kueue#14669).
        Chart(
            "kuberay-operator",
            _VERSION["kuberay"],
            "kuberay-system",
            "https://ray-project.github.io/kuberay-helm/",
            # The labels that ranks of workers are read from. Helm replaces lists whole; gates that are not named keep their defaults.
            {"featureGates": [{"name": "RayClusterStatusConditions", "enabled": True}, {"name": "RayMultiHostIndexing", "enabled": True}]},
        ),
        ("rayclusters.ray.io", "rayjobs.ray.io", "rayservices.ray.io"),
        (("kuberay-system", "kuberay-operator"),),
        images=(RAY_IMAGE,),
    ),
    Operator(
        "spark-operator",
        # Suspension since 2.4.0 (kubeflow/spark-operator#2387).
        Chart(
            "spark-operator",
            _VERSION["spark-operator"],
            "spark-operator",
            "https://kubeflow.github.io/spark-operator",
            # Every namespace; and the webhook is what gives drivers and executors their GPUs.
            {"spark": {"jobNamespaces": [""]}, "webhook": {"enable": True}},
        ),
        ("sparkapplications.sparkoperator.k8s.io",),
        (("spark-operator", "spark-operator-controller"), ("spark-operator", "spark-operator-webhook")),
        images=(SPARK_IMAGE,),
    ),
    Operator(
        "appwrapper",
        Manifests(
            f"https://github.com/project-codeflare/appwrapper/releases/download/v{_VERSION['appwrapper']}/install.yaml", (_NO_QUEUEING,)
        ),
        ("appwrappers.workload.codeflare.dev",),
        (("appwrapper-system", "appwrapper-controller-manager"),),
    ),
)


class UnknownKind(ValueError):
    """Neither a kind nor an operator; the message lists what there is."""


def find_kinds(words: Iterable[str]) -> tuple[str, ...]:
    """Kinds by their names or their operators', in whatever case; all if there are no words. Raises UnknownKind."""
    by_word: dict[str, tuple[str, ...]] = {operator.name: operator.kinds for operator in OPERATORS}
    by_word |= {kind.lower(): (kind,) for operator in OPERATORS for kind in operator.kinds}
    chosen: list[str] = []
    for word in words:
        if word.lower() not in by_word:
            raise UnknownKind(f"{word!r} is neither a kind nor an operator; there are {', '.join(sorted(by_word))}")
        chosen += by_word[word.lower()]
    return tuple(dict.fromkeys(chosen)) or tuple(kind for operator in OPERATORS for kind in operator.kinds)


def list_operators(kinds: Iterable[str]) -> tuple[Operator, ...]:
    """The operators that some kinds need, each after those that it needs itself."""
    wanted = set(kinds)
    names = {operator.name for operator in OPERATORS if wanted & set(operator.kinds)}
    names |= {need for operator in OPERATORS if operator.name in names for need in operator.needs}
    return tuple(sorted((o for o in OPERATORS if o.name in names), key=lambda operator: bool(operator.needs)))
