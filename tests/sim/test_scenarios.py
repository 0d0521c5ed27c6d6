"""Random lives of a cluster hold, a seed is the same life each time, and what fails is shrunk to the steps that it needs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from e2e.api import wait_for
from sim import faults, many, run
from sim.arguments import read_steps
from sim.many import Done, State, compute_digest
from sim.scenario import SMALL, plan
from sim.shrink import get_failure_kind, shrink

ROOT = Path(__file__).parents[2]
SEEDS, AT_ONCE = 200, 25
PARTS = [  # the first seed and how many: `make test-fast` plays 5, `make test` 200, `make test-all` 2,000
    (1, 5),
    pytest.param(6, AT_ONCE - 5, marks=pytest.mark.slow),
    *(pytest.param(first, AT_ONCE, marks=pytest.mark.slow) for first in range(AT_ONCE + 1, SEEDS, AT_ONCE)),
    *(pytest.param(first, AT_ONCE, marks=pytest.mark.long) for first in range(SEEDS + 1, 2000, AT_ONCE)),
]


def play(*arguments: str, hash_seed: str = "0") -> str:
    """In a process of its own: the order of sets is part of what a seed stands for."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "sim.run", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout


@pytest.mark.parametrize(("first", "count"), PARTS)
def test_small_lives_of_a_cluster_with_faults_hold(first: int, count: int):
    assert f"{count} of {count} hold" in play("--seed", str(first), "--count", str(count), "--small")


def test_large_life_of_a_cluster_with_faults_holds():
    assert "1 of 1 hold" in play("--seed", "1")


@pytest.mark.slow
def test_seed_is_the_same_life_in_every_process():
    """The digest of all writes is printed. The second life is played after another one, and both with another seed of hashes given."""
    alone = play("--seed", "4", "--small").splitlines()[0]
    assert alone == play("--seed", "3", "--count", "2", "--small", hash_seed="7").splitlines()[1]


def test_steps_of_seeds_have_at_least_five_faults_and_all_kinds_occur():
    begun = [[step.detail for step in plan(seed, SMALL) if step.name == "begin_fault"] for seed in range(SEEDS)]
    assert min(len(set(each)) for each in begun) >= 5
    assert {kind for each in begun for kind in each} == set(faults.KINDS)


@pytest.mark.slow
def test_failure_of_a_defect_is_shrunk_to_fewer_steps_that_fail_alike_when_played_again(tmp_path: Path):
    """A leader ends when the API server is away: a defect of the past."""
    program = (
        "import sys; from sim import defects, past_defects, run\n"
        "defect = next(each for each in past_defects.DEFECTS if each.name == 'B5')\n"
        "with defects.put_back(defect): sys.exit(run.main())"
    )

    def fail(*arguments: str) -> str:
        command, environment = [sys.executable, "-c", program, "--seed", "5", *arguments], {**os.environ, "PYTHONHASHSEED": "0"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stdout[-5000:] + done.stderr[-5000:]
        return done.stdout

    told = fail("--small", "--shrink-s", "15", "--out", str(tmp_path))
    path = next(line for line in told.splitlines() if "steps fail alike" in line).rpartition(" ")[2]
    assert len(read_steps(path)) < len(plan(5, SMALL))
    lines = [next(line for line in each.splitlines() if line.startswith("seed 5: ")) for each in (told, fail("--steps", path))]
    assert get_failure_kind(lines[0]) == get_failure_kind(lines[1])


def test_shrink_list_with_two_needed_steps_returns_these():
    def fails(steps: Sequence[int]) -> bool:
        return {3, 17} <= set(steps)

    assert shrink(range(40), fails, lambda: True) == [3, 17]


def test_shrink_without_time_returns_all_steps():
    assert shrink([1, 2], lambda _: True, lambda: False) == [1, 2]


def test_classify_problem_leaves_out_names_with_numbers():
    assert get_failure_kind("Broken: workload red/job-13-d1ac4 has no job; more") == get_failure_kind(
        "Broken: workload red/job-2-ffff0 has no job"
    )
    assert get_failure_kind("") == ""


def test_state_read_again_continues_after_the_last_seed(tmp_path: Path):
    path = tmp_path / "out" / "simulated.json"
    State(path, "a").add(Done(first=1, next=11, writes=5, failures={7: "Broken: x"}))
    again = State(path, "a")
    assert (again.next, again.failures, again.again, again.sources) == (11, {7: "Broken: x"}, [], {"a": 10})


def test_state_without_a_file_continues_from_the_record_of_the_same_source_only(tmp_path: Path):
    """`make simulate-faults SEEDS=200` played none on a new machine, and none after a change: other sources had played them."""
    path, record = tmp_path / "simulated.json", tmp_path / "played.json"
    State(record, "a").add(Done(first=1, next=11, writes=5, failures={7: "Broken: x"}))
    assert State(path, "a", record).next == 11
    state = State(path, "b", record)
    assert (state.next, state.again, state.sources) == (1, [7], {"a": 10})
    state.add(Done(first=1, next=3, writes=5, failures={}))
    assert State(path, "b", record).next == 3
    assert State(record, "a").next == 11


def test_state_of_another_source_plays_failed_seeds_again_first(tmp_path: Path):
    path = tmp_path / "simulated.json"
    State(path, "a").add(Done(first=1, next=11, writes=5, failures={7: "Broken: x", 9: "Broken: y"}))
    other = State(path, "b")
    assert (other.next, sorted(other.failures), other.again) == (1, [7, 9], [7, 9])
    other.add(Done(first=7, next=8, writes=1, failures={}))
    assert (State(path, "b").next, State(path, "b").failures, State(path, "b").again) == (1, {9: "Broken: y"}, [9])
    other.add(Done(first=9, next=10, writes=1, failures={9: "Broken: z"}))
    last = State(path, "b")
    assert (last.failures, last.again, last.sources) == ({9: "Broken: z"}, [], {"a": 10, "b": 2})


def test_digest_of_the_source_changes_with_content_or_name(tmp_path: Path):
    (tmp_path / "sim").mkdir()
    file = tmp_path / "sim" / "a.py"
    file.write_text("1")
    first = compute_digest(tmp_path, ["sim"])
    assert compute_digest(tmp_path, ["sim"]) == first
    file.write_text("2")
    second = compute_digest(tmp_path, ["sim"])
    file.rename(tmp_path / "sim" / "b.py")
    assert len({first, second, compute_digest(tmp_path, ["sim"])}) == 3


def test_seeds_behind_a_gap_of_the_limit_are_played_again(tmp_path: Path):
    state = State(tmp_path / "state.json", "a")
    state.add(Done(first=1, next=4, writes=1, failures={}))
    state.add(Done(first=6, next=8, writes=1, failures={7: "Broken: x"}))
    assert (state.next, state.failures) == (4, {7: "Broken: x"})


def play_many(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "sim.many", "--processes", "1", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def list_group(leader: int) -> list[Path]:
    """The processes of a group that have not ended."""
    return [path.parent for path in Path("/proc").glob("[0-9]*/cmdline") if read_of_group(path, leader)]


def read_of_group(path: Path, leader: int) -> str:
    """The command line of a process, if it is of a group and has not ended."""
    try:
        return path.read_text() if os.getpgid(int(path.parent.name)) == leader else ""
    except OSError:
        return ""


def count_playing(leader: int) -> int:
    """The processes that play, which have a thread that waits for the end of their parent."""
    playing = [each for each in list_group(leader) if "spawn_main" in read_of_group(each / "cmdline", leader)]
    return sum(len(list((each / "task").glob("*"))) > 1 for each in playing)


@pytest.mark.slow
def test_limit_of_time_before_the_first_seed_is_printed_and_fails(tmp_path: Path):
    told = "the limit of 0 minutes was reached; started again it goes on with seed 1\n"
    assert play_many("--minutes", "0", "--state", str(tmp_path / "state.json")) == (1, told)


@pytest.mark.slow
def test_seeds_that_this_source_has_played_are_not_played_again_and_failures_are_named(tmp_path: Path):
    path = tmp_path / "state.json"
    State(path, compute_digest()).add(Done(first=1, next=11, writes=1, failures={7: "Broken: x"}, excused=(3, 9)))
    code, told = play_many("--seeds", "10", "--state", str(path))
    assert code == 1
    assert told.splitlines() == [
        "seeds 1 to 10 have been played with this source, 2 of which something was excused",
        "seed 7 failed: Broken: x",
        "  .venv/bin/python -m sim.run --seed 7  # plays it again and looks for fewer steps",
        "seeds 1 to 10 have been played with this source; --anew (`make simulate-faults ANEW=1`) plays them again",
    ]


def test_seeds_of_which_something_was_excused_are_counted_once(tmp_path: Path):
    path = tmp_path / "state.json"
    for _ in range(2):
        State(path, "a").add(Done(first=1, next=11, writes=1, failures={}, excused=(3, 9)))
    assert State(path, "a").excused == {3, 9}
    State(path, "a").add(Done(first=3, next=4, writes=1, failures={}))
    assert (State(path, "a").excused, State(path, "b").excused) == ({9}, set())


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_program_that_is_ended_leaves_no_process(tmp_path: Path, sent: int, code: int):
    command = [sys.executable, "-m", "sim.many", "--state", str(tmp_path / "state.json"), "--seeds", "10000", "--processes", "2"]
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        wait_for("two processes that play", lambda: count_playing(running.pid) == 2)
        os.kill(running.pid, sent)
        told, _ = running.communicate(timeout=600)
    finally:
        running.kill()  # whereupon the others end, too
    wait_for("the end of all processes", lambda: not list_group(running.pid))
    assert (running.returncode, "Traceback" in told) == (code, False)


@pytest.mark.parametrize(
    ("module", "name", "value", "told"),
    [
        ("sim.many", "--seeds", "0", "--seeds: '0' is not accepted: it must be a whole number of at least 1"),
        ("sim.many", "--processes", "-1", "--processes: '-1' is not accepted"),
        ("sim.many", "--state", "{path}", "does not have what has been played; --anew begins without it"),
        ("sim.run", "--count", "0", "--count: '0' is not accepted: it must be a whole number of at least 1"),
        ("sim.run", "--jobs", "-3", "--jobs: '-3' is not accepted"),
        ("sim.run", "--seed", "x", "--seed: 'x' is not accepted"),
        ("sim.run", "--steps", "{path}/none", "can't be read: Not a directory"),
        ("sim.run", "--steps", "{path}", "has no steps ([1] is no step): a JSON list of steps is accepted"),
    ],
)
def test_wrong_argument_is_refused_with_values_that_are_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], module: str, name: str, value: str, told: str
):
    path = tmp_path / "wrong.json"
    path.write_text("[[1]]")
    with pytest.raises(SystemExit) as ended:
        {"sim.many": many, "sim.run": run}[module].main([name, value.format(path=path)])
    assert (ended.value.code, told in capsys.readouterr().err.replace("\n", " ")) == (2, True)


@pytest.mark.slow
def test_log_of_a_seed_has_steps_and_seconds_of_virtual_time():
    lines = play("--seed", "1", "--jobs", "1", "--others", "0", "--faults", "1", "--log").splitlines()
    submitted = [float(line.split()[0]) for line in lines if "INFO sim.scenario: submit " in line]
    assert submitted
    assert min(submitted) > 0
    assert any("INFO reconciler" in line for line in lines)
