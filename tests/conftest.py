"""What every test may rely on: one real control plane for the session, a namespace per test, no task left behind."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import inspect
import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterator
from pathlib import Path
from typing import Any, NoReturn

import hypothesis
import pytest
from xdist.remote import Producer

from e2e.accounts import PARTS, get_user_name
from e2e.audit.asked import write_policy
from e2e.audit.findings import describe_cluster
from e2e.audit.otlp import Receiver
from e2e.audit.recount import recount
from e2e.binaries import KUBERNETES_VERSIONS, UnknownVersion, find_kubernetes_minor
from e2e.cluster import Cluster
from e2e.crds import install_crds
from e2e.kind import tools
from e2e.topogate import SYSTEM_NAMESPACE
from sim.scenes.cluster import SimulatedCluster
from sim.scenes.topogate import SimulatedTopogate
from tests import slices, workers
from tests.chart.rights_of_a_run import write_asked, write_written_in_memory
from tests.installed import Installed
from tests.reconciler.scenes import Scene
from tests.turns import Turns

# No event loop but those of the tests themselves. On Python 3.11 looptime asks for the current one also in tests that are not async, which
# makes one that nobody closes: with warnings as errors the session then fails at its end.
asyncio.set_event_loop(None)

# No deadline: a loaded machine is no failure. CI repeats the same examples, so that a red build is red again.
hypothesis.settings.register_profile("dev", deadline=None, max_examples=30)
hypothesis.settings.register_profile("ci", deadline=None, max_examples=30, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("fast", deadline=None, max_examples=10)
hypothesis.settings.register_profile("deep", deadline=None, max_examples=300)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))


ROOT = Path(__file__).parents[1]
DURATIONS = "TOPOGATE_DURATIONS"  # a file of `out`: set by the Makefile for runs of all tests
LIVE = ROOT / "tests" / "reconciler" / "live"
SCENES = "TOPOGATE_SCENES"  # `live`: what is marked `in_memory` is played on the real control plane

_numbers = itertools.count(1)
_RUNNING = pytest.StashKey[Cluster]()
_KEPT_LOGS = pytest.StashKey[list[Path]]()
_PASSED = pytest.StashKey[bool]()
_TURNS = pytest.StashKey[Turns]()
_EARLIER = pytest.StashKey[list[Scene]]()  # scenes that were open before the test, as those of its module


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that need the control plane come last: whoever broke something pure hears of it in seconds. Of several processes some play
    them from the start (`tests.workers`)."""
    items[:] = _choose_scenes(config, items)
    for item in items:
        if is_in_memory(item):
            item.own_markers = [mark for mark in item.own_markers if mark.name != "long"]
        elif {"cluster", "live_cluster"}.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.cluster)
        for needed in item.iter_markers("since_kubernetes"):
            minor, feature = needed.args
            chosen = find_kubernetes_minor()
            if [*KUBERNETES_VERSIONS].index(chosen) < [*KUBERNETES_VERSIONS].index(minor):
                item.add_marker(pytest.mark.skip(reason=f"Kubernetes {chosen} has no {feature}, which is there since {minor}"))
    # What topogate registers holds for the whole cluster: tests without it come first. Late those that restart the API server: the
    # controllers of the control plane then back off for a while. Files stay whole, since a process plays them so.
    order: dict[Path, tuple[bool, ...]] = {}
    for item in items:
        on_cluster, with_topogate = item.get_closest_marker("cluster") is not None, "installed" in getattr(item, "fixturenames", ())
        order[item.path] = max(order.get(item.path, ()), (on_cluster, "test_real_apiserver" in item.nodeid, with_topogate))
    rank = {ROOT / name: number - len(workers.LONG) for number, name in enumerate(workers.LONG)}
    files = {item.nodeid.split("::")[0] for item in items if order[item.path][0]}
    items.sort(key=lambda item: (order[item.path], rank.get(item.path, 0), str(item.path), item.get_closest_marker("cluster") is not None))
    workers.write_files(config, files)


def _choose_scenes(config: pytest.Config, items: list[pytest.Item]) -> list[pytest.Item]:
    """A test of a module that is played in memory which needs more than that is played by `tests/reconciler/live`, whose tests are played
    in their own modules where all is live."""
    all_live = os.environ.get(SCENES) == "live"
    left = [each for each in items if (LIVE in each.path.parents if all_live else is_in_memory(each) and each.get_closest_marker("live"))]
    config.hook.pytest_deselected(items=left)
    return [each for each in items if each not in left]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """One of several processes waits for its turn, before fixtures and limits of time begin."""
    turns = item.config.stash.get(_TURNS, None) if item.get_closest_marker("cluster") else None
    with contextlib.nullcontext() if turns is None else turns.take():
        return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Where the setup of a module fails what it has opened is the test's."""
    item.stash[_EARLIER] = list(Scene.unclosed)


@pytest.fixture(autouse=True)
def _announced(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fast half must run where nothing is built: a test that makes a control plane of its own, or asks for one of the
    programs that are built where they are not there, carries the marker. By now the fixtures of the module have been set up."""
    request.node.stash[_EARLIER] = list(Scene.unclosed)
    if not any(map(request.node.get_closest_marker, ("cluster", "docker"))):
        monkeypatch.setattr(Cluster, "start", _refuse_to_start)
        for name in ("ensure_binaries", "get_cache_dir"):  # the first steps towards kubectl, and towards kind and Helm
            monkeypatch.setattr(tools, name, _refuse_to_build)


def _refuse_to_start(_: Cluster) -> Cluster:
    raise AssertionError("a test that starts a control plane is to be marked: @pytest.mark.cluster")


def _refuse_to_build(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("a test that needs a program which may have to be built is to be marked: @pytest.mark.cluster")


@pytest.fixture(scope="session")
def audit_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the API server of this process writes down what topogate's processes ask of it, for `tests.chart.rights_of_a_run`."""
    folder = tmp_path_factory.mktemp("audit")
    yield folder
    write_asked(folder, os.environ.get("PYTEST_XDIST_WORKER", "main"))


def is_in_memory(node: pytest.Item | pytest.Module) -> bool:
    """Whether a test, or those of a module, are played on the simulated cluster."""
    return node.get_closest_marker("in_memory") is not None and os.environ.get(SCENES) != "live"


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The real control plane; a simulated cluster of its own for a module that is played in memory, by a seed that a failure prints."""
    if not is_in_memory(request.node):
        yield request.getfixturevalue("live_cluster")
        return
    seed = os.environ.get("PYTHONHASHSEED", "")
    simulated = SimulatedCluster(int(seed) if seed.isdigit() else 1).start()
    yield simulated
    written = set().union(*(replica.written for replica in simulated.world.replicas))
    write_written_in_memory(written, f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}-{request.node.path.stem}")
    simulated.stop()


@pytest.fixture(scope="session")
def live_cluster(request: pytest.FixtureRequest, audit_folder: Path) -> Iterator[Cluster]:
    """The real control plane, without nodes; built if it has to be, never skipped. Add a pool of nodes of your own."""
    running = Cluster(apiserver_flags=write_policy(audit_folder, (get_user_name(part, SYSTEM_NAMESPACE) for part in PARTS))).start()
    request.config.stash[_RUNNING] = running
    try:
        yield running
    finally:
        del request.config.stash[_RUNNING]
        failed = request.session.testsfailed > 0
        running.stop(keep_logs=failed)
        if failed:
            request.config.stash[_KEPT_LOGS] = [running.log_dir]


@pytest.fixture(scope="module", autouse=True)
def delete_left_nodes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Deletes the nodes that a module leaves: no queue keeps a group of pods to the nodes of its own scene, it would find room there."""
    yield
    running = request.config.stash.get(_RUNNING, None)
    if running is not None:
        running.delete_nodes()


@pytest.fixture(scope="module")
def installed(request: pytest.FixtureRequest, cluster: Cluster) -> Installed:
    """The topogate of the cluster. Tests without it run before."""
    if isinstance(cluster, SimulatedCluster):
        return Installed(cluster, SimulatedTopogate)
    live: Installed = request.getfixturevalue("live_installed")
    return live


@pytest.fixture(scope="session")
def live_installed(live_cluster: Cluster) -> Iterator[Installed]:
    """The topogate of this process, for the modules that use one."""
    made = Installed(live_cluster)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    """What a collector would be sent."""
    with Receiver() as running:
        yield running


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Beside a failure, what the control plane looked like: a wait that ran out says only what did not come."""
    report = yield
    if report.when != "teardown":
        item.stash[_PASSED] = report.passed
    running = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(running, Cluster):
        try:
            said = describe_cluster(running)
        except Exception as error:  # a failure of this must not hide that of the test
            said = f"could not be found out: {error!r}"
        report.sections.append(("the control plane at that moment", said))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Every passed test on the control plane ends with the audit from objects alone, before its fixtures delete anything. A failed
    test deletes the nodes and queues of its scenes, also where its setup failed: they must not change the results of the tests after it."""
    broken: list[str] = []
    running = getattr(item, "funcargs", {}).get("cluster")
    if isinstance(running, Cluster) and item.stash.get(_PASSED, False) and item.get_closest_marker("not_recounted") is None:
        broken = recount(running.api)
    if not item.stash.get(_PASSED, True):
        earlier = item.stash.get(_EARLIER, Scene.unclosed)  # not there where the test was skipped before its setup
        for scene in [scene for scene in Scene.unclosed if scene not in earlier]:
            with contextlib.suppress(Exception, AssertionError):  # the test has failed already
                scene.close()
    yield
    assert broken == [], "the audit from objects alone, at the end of the test"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The order of sets is part of a failure, and is repeated with this variable. What the control plane itself says went to stderr in the
    last test's teardown, which pytest shows nobody."""
    if terminalreporter.getreports("failed") and "PYTHONHASHSEED" in os.environ:
        terminalreporter.write_line(f"this run had PYTHONHASHSEED={os.environ['PYTHONHASHSEED']}")
    for kept in config.stash.get(_KEPT_LOGS, []):
        terminalreporter.write_line(f"the logs of the control plane and of topogate are in {kept}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """One of several processes tells where its logs are, and that it is through with what failed."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["kept_logs"] = [str(path) for path in session.config.stash.get(_KEPT_LOGS, [])]


class _Several:
    """What the process that hands out the tests to others is told by them; only there where there are several."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        kept = map(Path, getattr(node, "workeroutput", {}).get("kept_logs", []))
        node.config.stash.setdefault(_KEPT_LOGS, []).extend(kept)


class _Durations:
    """How long each test took with its fixtures, in seconds, written to a file; only in the process that hands out tests."""

    def __init__(self, path: Path) -> None:
        self._path, self._seconds = path, Counter[str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text(json.dumps({name: round(seconds, 3) for name, seconds in self._seconds.most_common()}, indent=1))


def pytest_collection_finish() -> None:
    """The collector of cycles looked at all collected tests again and again: a fifth of the CPU of tests without a control plane."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> workers.Files | None:
    """Who plays which file."""
    return workers.Files(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_configure(config: pytest.Config) -> None:
    try:
        find_kubernetes_minor()
    except UnknownVersion as error:
        raise pytest.UsageError(str(error)) from error
    if hasattr(config, "workerinput"):
        if workers.starts_no_cluster(config.workerinput["workerid"]):
            os.nice(10)  # it never waits, and must not keep those waiting that watch a control plane
        slices.use_long_slices()
        config.stash[_TURNS] = Turns()
        os.environ.setdefault("GOMAXPROCS", "1")  # 8 % less CPU where there are more control planes than processors
    gc.disable()  # until all is collected, which stays: a third of the time of that
    config.pluginmanager.register(_Several())
    # A run within a test has the variable of a test.
    if not hasattr(config, "workerinput") and "PYTEST_CURRENT_TEST" not in os.environ and DURATIONS in os.environ:
        config.pluginmanager.register(_Durations(ROOT / "out" / os.environ[DURATIONS]))


@pytest.fixture(scope="session")
def crds(live_cluster: Cluster) -> list[str]:
    """Our CRDs, installed in the session's control plane; their names."""
    return install_crds(live_cluster.api)


@pytest.fixture(scope="module")
def module_namespace(cluster: Cluster) -> Iterator[str]:
    """A fresh namespace for what a module probes once."""
    name = f"module-{next(_numbers)}"
    cluster.create_namespace(name)
    yield name
    cluster.delete_namespace(name)


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh namespace, in which pods can be created; deleted afterwards (not waited for)."""
    name = f"test-{next(_numbers)}"
    cluster.create_namespace(name, labels={"e2e.topogate.dev/test": request.node.name.split("[")[0][:63].rstrip("_-.")})
    yield name
    cluster.delete_namespace(name)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Fail an asyncio test that ends while tasks it started still run: in production such a task is a leak or a crash unseen.

    A wrapper of the test and not a fixture: a fixture would give every synchronous test an event loop too.
    """
    test = getattr(item, "obj", None)
    generated = getattr(test, "hypothesis", None)
    if generated is not None and inspect.iscoroutinefunction(generated.inner_test):
        generated.inner_test = _watch_for_leaks(generated.inner_test)
    elif inspect.iscoroutinefunction(test):
        item.obj = _watch_for_leaks(test)  # type: ignore[attr-defined]


def _watch_for_leaks(test: Callable[..., Coroutine[object, object, None]]) -> Callable[..., Coroutine[object, object, None]]:
    @functools.wraps(test)
    async def watched(*args: object, **kwargs: object) -> None:
        before = asyncio.all_tasks()
        await test(*args, **kwargs)
        for _ in range(3):  # a cancelled task ends only when the loop has turned
            await asyncio.sleep(0)
        leaked = asyncio.all_tasks() - before
        assert not leaked, f"tasks left running: {sorted(f'{task.get_name()} {task.get_coro()!r}' for task in leaked)}"

    return watched
