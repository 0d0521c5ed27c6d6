"""The `topogate` command: its subcommands and their arguments. What they do is in `cli.commands` and `cli.queue_command`, which are
imported by a command that runs alone: neither a process nor a completion should wait for all of it.
"""

import gc
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cli import cluster_names, shell_completion
from cli.inputs import ClusterSource, DecisionInputs
from cli.pause import register
from core.names import PLACEMENT_PROFILES

_MOST_KEPT = 2_000_000  # objects that `queue` keeps before it looks for cycles: it keeps nearly all that it makes
# What belongs to a process is handed on as it is, --help included.
_AS_IT_IS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
_BEHAVIOUR: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}

app = typer.Typer(
    name="topogate",
    help="Admits and places Kubernetes batch workloads by topology, and says what it decides and why.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    **_BEHAVIOUR,
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"topogate {metadata.version('topogate')}")
        raise typer.Exit


@app.callback()
def run_topogate(
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and end.")] = False,
) -> None:
    """What all words have in common."""


class Form(StrEnum):
    """How to print what was found."""

    JSON = "json"
    YAML = "yaml"


Kubeconfig = Annotated[str | None, typer.Option("--kubeconfig", metavar="FILE", help="Default: $KUBECONFIG, then ~/.kube/config.")]
Context = Annotated[str | None, typer.Option("--context", metavar="NAME", help="Of the kubeconfig; default: its current one.")]
Config = Annotated[str | None, typer.Option("--config", metavar="FILE", help="The configuration file that the reconciler is run with.")]
Gates = Annotated[list[str] | None, typer.Option("--feature-gates", metavar="NAME=BOOL,...", help="As the reconciler's.")]
Profile = Annotated[
    str | None, typer.Option("--placement-profile", metavar="NAME", help=f"As the reconciler's: one of {', '.join(PLACEMENT_PROFILES)}.")
]
Nodes = Annotated[
    list[Path] | None,
    typer.Option("--nodes", metavar="FILE", help="Not a live cluster but files: nodes, topologies, flavors, queues, ... Repeatable."),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace", "-n", help="Of what names none itself; default: as kubectl's.", autocompletion=cluster_names.complete_namespace
    ),
]
Output = Annotated[Form | None, typer.Option("--output", "-o", help="Print data instead of text.")]


@app.command(
    "webhook", context_settings=_AS_IT_IS, help="Run the admission webhook; takes what `python -m webhook` takes.", add_help_option=False
)
def run_webhook(context: typer.Context) -> None:
    from webhook.__main__ import main

    raise typer.Exit(main(context.args))


@app.command(
    "reconciler", context_settings=_AS_IT_IS, help="Run the reconciler; takes what `python -m reconciler` takes.", add_help_option=False
)
def run_reconciler(context: typer.Context) -> None:
    from reconciler.__main__ import main

    raise typer.Exit(main(context.args))


@app.command()
def plan(
    files: Annotated[list[Path], typer.Option("--filename", "-f", metavar="FILE", help="Jobs; - for stdin. Repeatable.")],
    nodes: Nodes = None,
    namespace: Namespace = None,
    output: Output = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    config: Config = None,
    feature_gates: Gates = None,
    placement_profile: Profile = None,
) -> None:
    """Say what would happen to jobs: where they would be placed, or why they would wait. Creates nothing.

    Exit code 0: all would be admitted; 3: one would wait; 2: bad input; 1: another error.
    """
    from cli import commands

    source = ClusterSource(nodes or (), kubeconfig, context, namespace)
    raise typer.Exit(commands.plan(files, source, DecisionInputs(config, feature_gates or (), placement_profile), output))


@app.command()
def explain(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="KIND NAME",
            help="KIND NAME, KIND/NAME or NAME of a workload, job, queue, node, CronJob, Deployment, ...",
            autocompletion=cluster_names.complete_explained,
        ),
    ],
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Print it again when it has changed, until interrupted.")] = False,
    nodes: Nodes = None,
    namespace: Namespace = None,
    output: Output = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    config: Config = None,
    feature_gates: Gates = None,
    placement_profile: Profile = None,
) -> None:
    """Say how far a workload is: why it waits and what would help, or where it is and why there.

    Of a queue: whether it admits workloads, and why not. Of a node: whether it is usable, and what holds it. Of a CronJob or a Deployment:
    its queue, and what each of its Workloads says. Needs rights in one namespace only; what may not be read is reported.
    """
    from cli import commands

    source, decisions = (
        ClusterSource(nodes or (), kubeconfig, context, namespace),
        DecisionInputs(config, feature_gates or (), placement_profile),
    )
    commands.explain(what, source, decisions, output, is_watched=watch)


class QueueForm(StrEnum):
    """How to print queues."""

    JSON = "json"
    YAML = "yaml"
    WIDE = "wide"


@app.command("queue")
def run_queue(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[CLUSTERQUEUE|LOCALQUEUE]",
            help="NAME, clusterqueue/NAME or localqueue/NAME; default: all.",
            autocompletion=cluster_names.complete_queue,
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Print it again when it has changed, until interrupted.")] = False,
    nodes: Nodes = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            help="Of the LocalQueue; only its workloads are named, others are counted.",
            autocompletion=cluster_names.complete_namespace,
        ),
    ] = None,
    output: Annotated[QueueForm | None, typer.Option("--output", "-o", help="More columns, or data instead of text.")] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    config: Config = None,
    feature_gates: Gates = None,
) -> None:
    """Show queues: what waits, in the order in which it is considered, what holds quota, and the quota.

    Needs rights in one namespace only; what may not be read is reported.
    """
    gc.set_threshold(_MOST_KEPT)
    from cli.queue_command import show_queues

    source = ClusterSource(nodes or (), kubeconfig, context, namespace)
    show_queues(name, source, DecisionInputs(config, feature_gates or ()), output, is_watched=watch)


class _ShowsByDefault(TyperGroup):
    """`topology NAME` is `topology show NAME`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            args = ["show", *args]
        return super().parse_args(ctx, args)


_TREES = """The trees of nodes: what there is, or what the nodes' labels suggest.

`topogate topology` is `topogate topology show`; `topogate topology show --help` lists its options: --seats, --hosts, --svg, --pod, ...
"""
topologies = typer.Typer(cls=_ShowsByDefault, help=_TREES, **_BEHAVIOUR)
app.add_typer(topologies, name="topology")


@topologies.command("show")
def show_topology(
    name: Annotated[str | None, typer.Argument(help="Of a Topology; default: all.", autocompletion=cluster_names.complete_topology)] = None,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Draw which job runs on which node into a file.")] = None,
    seats: Annotated[bool, typer.Option("--seats", help="Draw which job runs on which node on the terminal, too.")] = False,
    hosts: Annotated[bool, typer.Option("--hosts", help="Go down to the nodes.")] = False,
    pod: Annotated[str | None, typer.Option("--pod", metavar="RESOURCE=QUANTITY,...", help="Count fits of such pods.")] = None,
    resource: Annotated[str | None, typer.Option("--resource", help="What a seat is; default: the first accelerator.")] = None,
    nodes: Nodes = None,
    output: Output = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    config: Config = None,
) -> None:
    """Show topologies with capacity, what is used, and the largest fit of each level. `topogate topology` alone does so, too."""
    from cli import commands
    from cli.reporting.topology_command import View

    view = View(pod, hosts=hosts, seats=seats, resource=resource, svg=svg)
    commands.show_topology(name, ClusterSource(nodes or (), kubeconfig, context), DecisionInputs(config), output, view)


@topologies.command("suggest")
def suggest_topology(
    nodes: Nodes = None,
    name: Annotated[str, typer.Option("--name", help="Of the Topology and the ResourceFlavor.")] = "default",
    cluster_queue: Annotated[str, typer.Option("--cluster-queue", metavar="NAME")] = "cluster-queue",
    local_queue: Annotated[str, typer.Option("--local-queue", metavar="NAME")] = "main",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Of the LocalQueue.")] = "default",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Write a Topology, a ResourceFlavor, a ClusterQueue and a LocalQueue for the nodes there are, ready to apply."""
    from cli import commands
    from cli.suggest import Names

    commands.suggest_topology(ClusterSource(nodes or (), kubeconfig, context), Names(name, name, cluster_queue, local_queue, namespace))


register(app)


@app.command("completion")
def complete(shell: Annotated[shell_completion.Shell, typer.Argument(help="Which shell's.")]) -> None:
    """Print a completion script: `source <(topogate completion bash)`."""
    typer.echo(shell_completion.build_script(shell, typer.main.get_command(app)))
