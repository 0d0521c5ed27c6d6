"""The `topogate` command: which words there are, and what each takes. What they do is in the modules beside."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from typer.core import TyperGroup

from cli import completion, explain, finding, looking, planning, suggest, topology
from cli.draw import write_data
from cli.failures import BadInput, Failure
from cli.looking import Target
from cli.report import Report
from core.jobs.contract import JobKind
from core.jobs.kinds import INTEGRATIONS, UnusableIntegration, with_integrations
from core.runtime import plugins
from reconciler.settings import Settings, parse

Result = TypeVar("Result")
# What belongs to a process is handed on as it is, --help included.
_AS_IT_IS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

app = typer.Typer(
    name="topogate",
    help="Admits and places Kubernetes batch workloads by topology, and says what it decides and why.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


class Form(StrEnum):
    """How to print what was found."""

    JSON = "json"
    YAML = "yaml"


Kubeconfig = Annotated[str | None, typer.Option("--kubeconfig", metavar="FILE", help="Default: $KUBECONFIG, then ~/.kube/config.")]
Context = Annotated[str | None, typer.Option("--context", metavar="NAME", help="Of the kubeconfig; default: its current one.")]
Config = Annotated[str | None, typer.Option("--config", metavar="FILE", help="The configuration file that the reconciler is run with.")]
Gates = Annotated[list[str] | None, typer.Option("--feature-gates", metavar="NAME=BOOL,...", help="As the reconciler's.")]
Profile = Annotated[str | None, typer.Option("--placement-profile", metavar="NAME", help="As the reconciler's: kep or compact.")]
Nodes = Annotated[
    list[Path] | None,
    typer.Option("--nodes", metavar="FILE", help="Not a live cluster but files: nodes, topologies, flavors, queues, ... Repeatable."),
]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Of what names none itself.")]
Output = Annotated[Form | None, typer.Option("--output", "-o", help="Print data instead of text.")]


@dataclass(frozen=True, slots=True)
class Decisions:
    """By what the reconciler decides: it should be the same as where it runs."""

    config: str | None
    gates: list[str] | None
    profile: str | None

    def settings(self) -> Settings:
        """As the reconciler reads them; ends the process with a message and status 2 if they are wrong."""
        arguments = [f"--config={self.config}"] if self.config is not None else []
        arguments += [f"--feature-gates={gates}" for gates in self.gates or ()]
        arguments += [f"--placement-profile={self.profile}"] if self.profile is not None else []
        return parse(arguments, prog="topogate")


def kinds() -> tuple[JobKind, ...]:
    """All kinds of job, those of other packages, too."""
    try:
        return with_integrations(plugins.load(INTEGRATIONS))
    except (plugins.BrokenPlugin, UnusableIntegration) as error:
        raise Failure(str(error)) from error


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Does work that waits, on a loop of its own that nobody else gets to see."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(work)


def target_of(nodes: list[Path] | None, kubeconfig: str | None, context: str | None) -> Target:
    """Which cluster is meant; raises BadInput where that is said twice."""
    if nodes and (kubeconfig is not None or context is not None):
        raise BadInput("--nodes reads files instead of a cluster: leave out --kubeconfig and --context, or leave out --nodes")
    return Target(kubeconfig, context)


@app.command(context_settings=_AS_IT_IS, help="Run the admission webhook; takes what `python -m webhook` takes.", add_help_option=False)
def webhook(context: typer.Context) -> None:
    from webhook.__main__ import main  # it changes the interpreter's settings; only who runs it wants it

    raise typer.Exit(main(context.args))


@app.command(context_settings=_AS_IT_IS, help="Run the reconciler; takes what `python -m reconciler` takes.", add_help_option=False)
def reconciler(context: typer.Context) -> None:
    from reconciler.__main__ import main

    raise typer.Exit(main(context.args))


@app.command()
def plan(
    files: Annotated[list[Path], typer.Option("--filename", "-f", metavar="FILE", help="Jobs; - for stdin. Repeatable.")],
    nodes: Nodes = None,
    namespace: Namespace = "default",
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
    target = target_of(nodes, kubeconfig, context)
    settings = Decisions(config, feature_gates, placement_profile).settings()
    work = planning.plan(files, nodes or (), target, namespace, settings, kinds())
    raise typer.Exit(planning.tell(run(work), output.value if output is not None else None, Console()))


@app.command("explain")
def explain_workload(
    what: Annotated[list[str], typer.Argument(metavar="KIND NAME", help="workload NAME, job NAME, KIND/NAME, or a workload's name.")],
    nodes: Nodes = None,
    namespace: Namespace = "default",
    output: Output = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    config: Config = None,
    feature_gates: Gates = None,
    placement_profile: Profile = None,
) -> None:
    """Say how far a workload is: why it waits and what would help, or where it is and why there."""
    settings, asked = Decisions(config, feature_gates, placement_profile).settings(), finding.read_asked(what)

    target = target_of(nodes, kubeconfig, context)

    async def look() -> Report:
        if nodes:
            outlook = await looking.look_at(nodes, target, settings, kinds(), namespace)
            return explain.explain(outlook, finding.find_workload(outlook.observed, asked, namespace))
        async with looking.connected(target) as client:
            outlook = await looking.look(client, settings, kinds())
            workload = finding.find_workload(outlook.observed, asked, namespace)
            return explain.explain(outlook, workload, await looking.events_of(client, workload))

    report = run(look())
    if output is not None:
        write_data(Console(), report, output.value)
    else:
        explain.draw(Console(), report)


class _ShowsByDefault(TyperGroup):
    """`topology NAME` is `topology show NAME`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["show", *args]
        return super().parse_args(ctx, args)


topologies = typer.Typer(cls=_ShowsByDefault, help="The trees of nodes: what there is, or what the nodes' labels suggest.")
app.add_typer(topologies, name="topology")


@topologies.command("show")
def show_topology(
    name: Annotated[str | None, typer.Argument(help="Of a Topology; default: all.")] = None,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Draw who sits where into a file.")] = None,
    seats: Annotated[bool, typer.Option("--seats", help="Draw who sits where on the terminal, too.")] = False,
    hosts: Annotated[bool, typer.Option("--hosts", help="Go down to the nodes.")] = False,
    pod: Annotated[str | None, typer.Option("--pod", metavar="RESOURCE=QUANTITY,...", help="Count fits of such pods.")] = None,
    resource: Annotated[str | None, typer.Option("--resource", help="What a seat is; default: the first accelerator.")] = None,
    nodes: Nodes = None,
    namespace: Namespace = "default",
    output: Output = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show topologies with capacity, what is used, and the largest fit of each level. `topogate topology` alone does so, too."""
    counted = topology.read_pod(pod) if pod is not None else None
    target, settings = target_of(nodes, kubeconfig, context), Decisions(None, None, None).settings()
    outlook = run(looking.look_at(nodes or (), target, settings, kinds(), namespace))
    outlook.state.refresh()
    names = topology.find_names(outlook.state, name)
    reports = [topology.report_topology(outlook.state, each, counted) for each in names]
    console = Console()
    if output is not None:
        write_data(console, {"topologies": reports}, output.value)
    else:
        for report in reports:
            topology.draw(console, report, shows_hosts=hosts)
    if svg is not None or seats:
        topology.picture(outlook.observed, names, resource, svg, console if seats else None)


@topologies.command("suggest")
def suggest_topology(
    nodes: Nodes = None,
    name: Annotated[str, typer.Option("--name", help="Of the Topology and the ResourceFlavor.")] = "default",
    cluster_queue: Annotated[str, typer.Option("--cluster-queue", metavar="NAME")] = "cluster-queue",
    local_queue: Annotated[str, typer.Option("--local-queue", metavar="NAME")] = "main",
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Write a Topology, a ResourceFlavor, a ClusterQueue and a LocalQueue for the nodes there are, ready to apply."""
    target = target_of(nodes, kubeconfig, context)
    found = run(looking.nodes_of(nodes or (), target))
    suggestion = suggest.suggest(found, suggest.Names(name, name, cluster_queue, local_queue, namespace))
    for remark in suggestion.remarks:
        typer.echo(f"topogate: {remark}", err=True)
    typer.echo(suggestion.to_yaml(), nl=False)


@app.command("completion")
def complete(shell: Annotated[completion.Shell, typer.Argument(help="Which shell's.")]) -> None:
    """Print a completion script: `source <(topogate completion bash)`."""
    typer.echo(completion.script(shell))
