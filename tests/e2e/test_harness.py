"""The rules of `tests/conftest.py` hold: a leaked task fails its test, and what needs the control plane comes last."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # each plays tests in a process of its own
ROOT = Path(__file__).parents[2]


def run_pytest(folder: Path, source: str, *options: str) -> str:
    """What pytest says of these tests under our conftest, in a process of its own."""
    (folder / "test_it.py").write_text(textwrap.dedent(source))
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-c",
        ROOT / "pyproject.toml",
        "--rootdir",
        folder,
        *options,
        folder,
    ]
    # Where several processes share a run it is not one of them.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=env).stdout


def test_test_that_leaves_a_task_running_fails_with_the_name_of_the_task(tmp_path):
    said = run_pytest(
        tmp_path,
        """
        import asyncio
        from hypothesis import given, strategies as st

        async def test_leaks():
            asyncio.get_running_loop().create_task(asyncio.sleep(60), name="forgotten")

        @given(st.booleans())
        async def test_leaks_with_examples(value):
            asyncio.get_running_loop().create_task(asyncio.sleep(60), name="forgotten")

        async def test_tidies_up():
            task = asyncio.get_running_loop().create_task(asyncio.sleep(60))
            task.cancel()

        def test_has_no_loop():
            pass
        """,
    )
    assert "2 failed, 2 passed" in said
    assert "tasks left running: ['forgotten" in said


def test_tests_of_the_control_plane_are_marked_and_come_last(tmp_path):
    source = """
        def test_needs_it(cluster): pass
        def test_pure(): pass
        def test_needs_a_namespace(namespace): pass
        def test_pure_too(): pass
    """
    said = run_pytest(tmp_path, source, "--collect-only", "-q")
    names = [line.rsplit("::", 1)[1] for line in said.splitlines() if "::" in line]
    assert names == ["test_pure", "test_pure_too", "test_needs_it", "test_needs_a_namespace"]
    assert "2 deselected" in run_pytest(tmp_path, source, "--collect-only", "-q", "-m", "cluster")


def test_an_unmarked_test_can_build_nothing(tmp_path):
    """Wherever the programs are: it is here that it has to be noticed, not where nothing is built."""
    said = run_pytest(
        tmp_path,
        """
        import pytest
        from e2e.kind.tools import KIND, ensure_kubectl, ensure_tool

        def test_needs_kubectl():
            ensure_kubectl()

        def test_needs_kind():
            ensure_tool(KIND)
        """,
    )
    assert "2 failed" in said
    assert said.count("E   AssertionError: a test that needs a program which may have to be built is to be marked") == 2


SESSION = """
    import pytest
    import tests.conftest
    from pathlib import Path

    class Simulated:
        log_dir = Path("/tmp/topogate-e2e-x/logs")

        def __init__(self, *, apiserver_flags):
            self.flags = apiserver_flags

        def start(self):
            return self

        def stop(self, *, keep_logs):
            self.kept = keep_logs

    @pytest.fixture(scope="session", autouse=True)
    def simulated():
        tests.conftest.Cluster = Simulated

    @pytest.mark.not_recounted("there is nothing to count")
    def test_needs_it(cluster):
        assert {}
"""


def test_a_failed_session_ends_by_saying_where_the_logs_are(tmp_path):
    told = "the logs of the control plane and of topogate are in /tmp/topogate-e2e-x/logs"
    assert told in run_pytest(tmp_path, SESSION.format("False"))
    assert told not in run_pytest(tmp_path, SESSION.format("True"))


def test_failed_test_and_failed_setup_close_their_own_scenes_only(tmp_path):
    """That of the module was closed, too, and all tests after it failed; what a failed setup had opened stayed."""
    said = run_pytest(
        tmp_path,
        """
        import pytest
        from tests.reconciler.scenes import Scene

        class Noted(Scene):
            def __init__(self):
                self.unclosed.append(self)

            def close(self):
                self.unclosed.remove(self)

        @pytest.fixture(scope="module")
        def of_module():
            return Noted()

        @pytest.fixture
        def own():
            return Noted()

        @pytest.fixture
        def broken():
            Noted()
            raise ValueError

        def test_fails(of_module, own):
            raise ValueError

        def test_is_not_set_up(of_module, broken):
            pass

        @pytest.mark.skip
        def test_is_skipped(of_module):
            pass

        def test_passes(of_module):
            assert Scene.unclosed == [of_module]
        """,
    )
    assert "1 failed, 1 passed, 1 skipped, 1 error" in said


IN_MEMORY = """
    import pytest

    pytestmark = pytest.mark.in_memory

    @pytest.mark.long
    def test_takes_no_time(cluster):
        cluster.create_namespace("mine")
        assert type(cluster).__name__ == "SimulatedCluster"

    @pytest.mark.live("needs more")
    def test_needs_more(cluster):
        raise AssertionError
"""


def test_module_in_memory_plays_long_tests_on_a_simulated_cluster_and_leaves_live_tests_out(tmp_path, monkeypatch):
    monkeypatch.delenv("TOPOGATE_SCENES", raising=False)
    assert "1 passed, 1 deselected" in run_pytest(tmp_path, IN_MEMORY, "-m", "not cluster and not long")


def test_module_in_memory_is_played_on_the_real_control_plane_where_all_scenes_are_live(tmp_path, monkeypatch):
    monkeypatch.setenv("TOPOGATE_SCENES", "live")
    assert "2 deselected" in run_pytest(tmp_path, IN_MEMORY, "-m", "not cluster")
