"""Which operators there are, at which versions, from where, and how each is started on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.nodes import HOSTNAME_LABEL, RACK_LABEL, NodePool, build_node
from e2e.operators.spark import build_environment, ensure_spark
from e2e.standins.rights import list_more_rights

Obj = dict[str, Any]
HOST = "127.0.0.1"


@dataclass(frozen=True)
class Place:
    """Where an operator runs: a folder of its own, the API server, and free ports."""

    folder: Path
    server: str  # the address of the API server
    webhook: int
    health: int
    metrics: int

    @property
    def kubeconfig(self) -> Path:
        """For its service account."""
        return self.folder / "kubeconfig"

    @property
    def certificates(self) -> Path:
        """Where controller-runtime looks for them if `TMPDIR` is the folder."""
        return self.folder / "k8s-webhook-server" / "serving-certs"


@dataclass(frozen=True)
class Change:
    """A text of a source file that is replaced, which must be there once: what is compiled in and would clash with another process."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Part:
    """A module that another one looks for in a folder of its own source (`replace` in its `go.mod`)."""

    folder: str
    module: str
    version: str
    checksum: str


def _start_without_options(_: Place) -> Sequence[str]:
    return ()


def _fetch_nothing(_: Mapping[str, str]) -> None:
    pass


def _add_nothing(_: Place) -> Sequence[Obj]:
    return ()


@dataclass(frozen=True)
class Operator:
    """An operator as it is published.

    `checksum` is that of the module (as in `go.sum`), whose own `go.sum` pins all it is built with. `manifests` are folders of the module
    that `kubectl kustomize` renders, or files; `excluded` names objects of these that are not installed, and `objects` are applied after
    them, in place of those that have the same name. `arguments` come after the one with the kubeconfig. `probe` answers once it is ready.
    `companion` is a module of ours that runs beside it, at the port of webhooks that it has not. `fetch` brings what it needs beside its
    program, given the environment.
    """

    name: str
    module: str
    version: str
    checksum: str
    package: str
    manifests: tuple[str, ...]
    namespace: str
    account: str
    kinds: tuple[str, ...]
    arguments: Callable[[Place], Sequence[str]] = _start_without_options
    environment: Callable[[Place], Mapping[str, str]] = field(default=lambda _: {})
    configuration: Callable[[Place], Obj] | None = None  # written to `config.json` in its folder
    objects: Callable[[Place], Sequence[Obj]] = _add_nothing
    changes: tuple[Change, ...] = ()
    excluded: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    tags: str = ""
    parts: tuple[Part, ...] = ()
    companion: str = ""
    companion_account: str = ""  # in the operator's namespace, if not its own
    fetch: Callable[[Mapping[str, str]], object] = _fetch_nothing
    probe: str = "readyz"
    kubeconfig_flag: str = "kubeconfig"


def _build_configuration(api_version: str) -> Callable[[Place], Obj]:
    """The configuration of managers that have one in a file: all at this host, no election, certificates of ours."""

    def build(place: Place) -> Obj:
        return {
            "apiVersion": api_version,
            "kind": "Configuration",
            "webhook": {"host": HOST, "port": place.webhook},
            "health": {"healthProbeBindAddress": f"{HOST}:{place.health}"},
            "metrics": {"bindAddress": f"{HOST}:{place.metrics}"},
            "leaderElection": {"leaderElect": False},
        }

    return build


def _configure_with_own_certificates(api_version: str) -> Callable[[Place], Obj]:
    build = _build_configuration(api_version)

    def build_all(place: Place) -> Obj:
        config = build(place)
        webhook = config["webhook"] | {"certDir": str(place.certificates)}
        return config | {"webhook": webhook, "internalCertManagement": {"enable": False}}

    return build_all


def _build_trainer_configuration(place: Place) -> Obj:
    return _build_configuration("config.trainer.kubeflow.org/v1alpha1")(place) | {"certManagement": {"enable": False}}


def read_configuration_file(place: Place) -> Sequence[str]:
    return [f"--config={place.folder / 'config.json'}"]


def _bind(place: Place, **more: str) -> Sequence[str]:
    return [
        f"--health-probe-bind-address={HOST}:{place.health}",
        *(f"--{name.replace('_', '-')}={value}" for name, value in more.items()),
    ]


def _start_training_operator(place: Place) -> Sequence[str]:
    """Its MPIJob is of an older version; that of MPI operator is topogate's."""
    schemes = [f"--enable-scheme={kind}" for kind in ("pytorchjob", "tfjob", "xgboostjob", "paddlejob", "jaxjob")]
    return [*_bind(place, metrics_bind_address=f"{HOST}:{place.metrics}", webhook_server_port=str(place.webhook)), *schemes]


def _build_appwrapper_objects(place: Place) -> Sequence[Obj]:
    """It has a job reconciler of Kueue's inside, which would queue AppWrappers by itself."""
    config = {
        "appwrapper": {"enableKueueIntegrations": False, "kueueJobReconciller": {"manageJobsWithoutQueueName": False}},
        "controllerManager": {
            "health": {"bindAddress": f"{HOST}:{place.health}"},
            "metrics": {"bindAddress": f"{HOST}:{place.metrics}"},
            "leaderElection": False,
        },
    }
    metadata = {"name": "appwrapper-operator-config", "namespace": "appwrapper-system"}
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config.yaml": json.dumps(config)}}]


AUTOSCALED = NodePool(blocks=2, racks=2, nodes=3, prefix="auto-", labels={"pool": "auto"})
"""What the cluster autoscaler can make: a group of nodes for each rack, none of them there at first."""
_GROUP = "cluster-autoscaler.kwok.nodegroup"


def _start_autoscaler(place: Place) -> Sequence[str]:
    """It looks every second, so that scenes need not wait for its usual minutes."""
    return [
        "--cloud-provider=kwok",
        "--enable-provisioning-requests=true",
        "--kube-api-content-type=application/json",
        "--leader-elect=false",
        "--namespace=cluster-autoscaler",
        f"--address={HOST}:{place.health}",
        "--scan-interval=1s",
        "--provisioning-request-initial-backoff-time=1s",
        "--provisioning-request-max-backoff-time=2s",
        "--scale-down-delay-after-add=1s",
        "--scale-down-unneeded-time=2s",
    ]


def _build_autoscaler_objects(_: Place) -> Sequence[Obj]:
    """Rights for provisioning as its FAQ lists them, those that its kwok provider needs, and the provider's template nodes."""
    groups = [build_node(AUTOSCALED, block, rack, 0) for block in (1, 2) for rack in (1, 2)]
    for node in groups:
        node["metadata"]["annotations"] |= {f"{_GROUP}/max-count": str(AUTOSCALED.nodes), f"{_GROUP}/min-count": "0"}
    config = {
        "apiVersion": "v1alpha1",
        "readNodesFrom": "configmap",
        "nodegroups": {"fromNodeLabelKey": RACK_LABEL},
        "nodes": {"skipTaint": True},
        "configmap": {"name": "kwok-provider-templates"},
    }
    rules = [
        {
            "apiGroups": ["autoscaling.x-k8s.io"],
            "resources": ["provisioningrequests", "provisioningrequests/status"],
            "verbs": ["watch", "list", "get", "create", "update", "patch", "delete"],
        },
        {"apiGroups": [""], "resources": ["podtemplates"], "verbs": ["watch", "list", "get"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["create", "delete"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    ]
    data = {
        "kwok-provider-config": {"config": json.dumps(config)},
        "kwok-provider-templates": {"templates": "\n---\n".join(map(json.dumps, groups))},
    }
    return [
        *_build_role("cluster-autoscaler-provisioning", rules, "cluster-autoscaler", "cluster-autoscaler"),
        *(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": each, "namespace": "cluster-autoscaler"}, "data": content}
            for each, content in data.items()
        ),
    ]


def _allow_drivers(_: Place) -> Sequence[Obj]:
    """What kubelets may do that run drivers: no rights of the operator."""
    name, namespace = "spark-nodes", "spark-operator"
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]},
    ]
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
    return [account, *_build_role(name, rules, name, namespace)]


def _allow_launcher_status(_: Place) -> Sequence[Obj]:
    """What an administrator grants before 1.36, by docs/kinds.md."""
    rules = list_more_rights("MPIJob")
    return _build_role("mpi-launcher-status", rules, "mpi-operator", "mpi-operator") if rules else ()


def _build_role(name: str, rules: Sequence[Obj], account: str, namespace: str) -> list[Obj]:
    """A ClusterRole, bound to a service account."""
    rbac = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        },
    ]


_SPARK = (  # one program, which runs as two
    "github.com/kubeflow/spark-operator/v2",
    "v2.5.2",
    "h1:6nX2UhwSfnYi1mtwczgFfJTMeLSL/1ajTvkFe8R7Vdc=",
    "./cmd/operator",
)
_WEBHOOK_PORT = 'webhookPort := flag.Int("webhook-port", 9443, "")'
_NAMED = 'node.Name = fmt.Sprintf("%s-%s", nodeGroup.name, rand.String(5))'
_SERVE_AT_HOST = f'Host: "{HOST}", Port: '

OPERATORS = (
    Operator(
        "jobset",
        "sigs.k8s.io/jobset",
        "v0.12.0",
        "h1:YYPuV0px8Ongq/RXmJg6V0w2UC67aiR+rCMD06vhQQQ=",
        ".",
        ("config/default",),
        "jobset-system",
        "jobset-controller-manager",
        ("JobSet",),
        arguments=read_configuration_file,
        configuration=_configure_with_own_certificates("config.jobset.x-k8s.io/v1alpha1"),
    ),
    Operator(
        "lws",
        "sigs.k8s.io/lws",
        "v0.9.0",
        "h1:DcJCgxjjoGOx//QHZkeKpyiblxYq70aCRZNYSfykWyI=",
        "./cmd",
        ("config/default",),
        "lws-system",
        "lws-controller-manager",
        ("LeaderWorkerSet",),
        arguments=read_configuration_file,
        configuration=_configure_with_own_certificates("config.lws.x-k8s.io/v1alpha1"),
    ),
    Operator(
        "mpi-operator",
        "github.com/kubeflow/mpi-operator",
        "v0.8.2",
        "h1:7PVtV31iX3LSVW0BqRQ64w/NYNfAgP86Bmua2OEi5lg=",
        "./cmd/mpi-operator",
        ("manifests/overlays/standalone",),
        "mpi-operator",
        "mpi-operator",
        ("MPIJob",),
        arguments=lambda _: ["-alsologtostderr", "-lock-namespace=mpi-operator"],
        environment=lambda place: {"HEALTH_ADDRESS": f"{HOST}:{place.health}"},
        objects=_allow_launcher_status,
        changes=(Change("cmd/mpi-operator/app/server.go", 'fmt.Sprintf(":%d", healthCheckPort)', 'os.Getenv("HEALTH_ADDRESS")'),),
        probe="healthz",
        kubeconfig_flag="kubeConfig",
    ),
    Operator(
        "training-operator",
        "github.com/kubeflow/training-operator",
        "v1.9.4",
        "h1:MjYXzeaHGBmF47BlhCo6+Mb7ypHrVfO6vsys1ZHF56A=",
        "./cmd/training-operator.v1",
        ("manifests/overlays/standalone",),
        "kubeflow",
        "training-operator",
        ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob"),
        arguments=_start_training_operator,
        changes=(
            Change("cmd/training-operator.v1/main.go", "Port: webhookServerPort", f"{_SERVE_AT_HOST}webhookServerPort"),
            Change("cmd/training-operator.v1/main.go", "defer close(certsReady)", "close(certsReady)"),
            Change(
                "cmd/training-operator.v1/main.go",
                "cert.ManageCerts(mgr, certGenerationConfig, certsReady)",
                "func(cert.Config) error { return nil }(certGenerationConfig)",
            ),
        ),
        excluded=("mpijobs.kubeflow.org",),
    ),
    Operator(
        "trainer",
        "github.com/kubeflow/trainer/v2",
        "v2.3.0",
        "h1:Je+e7zvTLzB4qW09J1fB7pZrqvPtWuGng2NqdN5p5QU=",
        "./cmd/trainer-controller-manager",
        ("manifests/base/crds", "manifests/base/rbac", "manifests/base/webhook"),
        "kubeflow-system",
        "kubeflow-trainer-controller-manager",
        ("TrainJob",),
        arguments=read_configuration_file,
        configuration=_build_trainer_configuration,
        needs=("jobset",),
    ),
    Operator(
        "kuberay",
        "github.com/ray-project/kuberay/ray-operator",
        "v1.6.2",
        "h1:XUckRswLMyk71D00L62d2Vanh0fVkNqu56+IF/rr+O0=",
        ".",
        ("config/default",),
        "kuberay-system",
        "kuberay-operator",
        ("RayCluster", "RayJob", "RayService"),
        arguments=lambda place: _bind(
            place,
            metrics_addr=f"{HOST}:{place.metrics}",
            enable_leader_election="false",
            feature_gates="RayClusterStatusConditions=true,RayMultiHostIndexing=true",  # ranks are read from labels of the second
        ),
        environment=lambda place: {"ENABLE_WEBHOOKS": "false", "HTTP_PROXY": f"http://{HOST}:{place.webhook}"},
        companion="e2e.operators.ray_dashboard",
    ),
    Operator(
        "appwrapper",
        "github.com/project-codeflare/appwrapper",
        "v1.2.2",
        "h1:W5Dm0J8cOUPnb+Jo9rkHcvAzY+GkECy/vdGmozvGKHI=",
        "./cmd",
        ("config/default",),
        "appwrapper-system",
        "appwrapper-controller-manager",
        ("AppWrapper",),
        arguments=lambda place: [f"--webhook-port={place.webhook}"],
        environment=lambda _: {"NAMESPACE": "appwrapper-system"},
        objects=_build_appwrapper_objects,
        changes=(
            Change("cmd/main.go", "var configMapName string", f"{_WEBHOOK_PORT}\n\tvar configMapName string"),
            Change("cmd/main.go", "Port:    9443", f"{_SERVE_AT_HOST}*webhookPort"),
            Change(
                "cmd/main.go",
                'exitOnError(controller.SetupCertManagement(mgr, cfg.CertManagement, certsReady), "Unable to set up cert rotation")',
                "close(certsReady)",
            ),
        ),
        needs=("training-operator",),  # examples wrap a PyTorchJob
    ),
    Operator(
        "spark-webhook",
        *_SPARK,
        ("config/crd", "config/webhook"),
        "spark-operator",
        "spark-operator-webhook",
        (),
        arguments=lambda place: [
            *("webhook", "start", "--namespaces=", "--enable-cert-manager=true", f"--webhook-cert-dir={place.certificates}"),
            *(f"--webhook-port={place.webhook}", f"--health-probe-bind-address={HOST}:{place.health}"),
        ],
        changes=(
            Change("cmd/operator/webhook/start.go", "Port:     webhookPort", f"{_SERVE_AT_HOST}webhookPort"),
            Change(
                "cmd/operator/webhook/start.go",
                "certProvider.SyncSecret(context.TODO(), webhookSecretName, webhookSecretNamespace)",
                "func(context.Context) error { return nil }(context.TODO())",
            ),
            Change(
                "cmd/operator/webhook/start.go", "certProvider.WriteFile(webhookCertDir, webhookCertName, webhookKeyName)", "error(nil)"
            ),
        ),
    ),
    Operator(
        "spark-operator",
        *_SPARK,
        ("config/rbac", "config/manager/serviceaccount.yaml"),
        "spark-operator",
        "spark-operator-controller",
        ("SparkApplication",),
        arguments=lambda place: ["controller", "start", "--namespaces=", f"--health-probe-bind-address={HOST}:{place.health}"],
        environment=lambda place: build_environment(place.kubeconfig, place.server),
        objects=_allow_drivers,
        companion="e2e.operators.spark_driver",
        companion_account="spark-nodes",
        fetch=ensure_spark,
        needs=("spark-webhook",),
    ),
    Operator(
        "cluster-autoscaler",
        "k8s.io/autoscaler/cluster-autoscaler",
        "v0.0.0-20250613073258-1959f5f61f6c",  # calls itself 1.33.0; its releases have no versions of Go
        "h1:gGUthCoel/TlD1fh33foTFCs1n75w8sqmpD3qf2zqk4=",
        ".",
        ("apis/config/crd/autoscaling.x-k8s.io_provisioningrequests.yaml", "cloudprovider/aws/examples/cluster-autoscaler-one-asg.yaml"),
        "cluster-autoscaler",
        "cluster-autoscaler",
        (),
        arguments=_start_autoscaler,
        environment=lambda place: {
            "KWOK_PROVIDER_MODE": "local",
            "KUBECONFIG": str(place.kubeconfig),
            "POD_NAMESPACE": "cluster-autoscaler",
        },
        objects=_build_autoscaler_objects,
        # A kubelet names its node by this label; the provider gives all nodes that of their template.
        changes=(Change("cloudprovider/kwok/kwok_nodegroups.go", _NAMED, f'{_NAMED}\n\t\tnode.Labels["{HOSTNAME_LABEL}"] = node.Name'),),
        tags="kwok",
        parts=(
            Part(
                "apis",
                "k8s.io/autoscaler/cluster-autoscaler/apis",
                "v0.0.0-20240830133931-adfbe7e45277",
                "h1:BibFadVS+A7XR6HMReIuHoY9n8I+8oWR8/4xGgf2BDE=",
            ),
        ),
        probe="health-check",
    ),
)


class UnknownOperator(ValueError):
    """There is none of this name; the message lists those that there are."""


def find_operators(names: Iterable[str]) -> tuple[Operator, ...]:
    """Operators by name, each after those that it needs. Raises UnknownOperator."""
    known = {operator.name: operator for operator in OPERATORS}
    wanted: dict[str, Operator] = {}

    def add(name: str) -> None:
        if name not in known:
            raise UnknownOperator(f"there is no operator {name!r}; there are {', '.join(known)}")
        for needed in known[name].needs:
            add(needed)
        wanted[name] = known[name]

    for name in names:
        add(name)
    return tuple(wanted.values())
