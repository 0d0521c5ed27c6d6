"""Mutation testing of the engine, sampled to fit the time there is: `python -m tests.mutation --minutes 30 --seed 1`.

Works on a copy of the files that git knows, as they are on disk. All tests run once, to learn which of them
reach which line; each mutant then meets those that reach its line, the fastest first, until one fails.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import coverage

from tests.mutation.mutants import Mutant, changed_line, mutate, read_sources, sample
from tests.mutation.plugin import CHOOSE, RECORD

ROOT = Path(__file__).parents[2]
MUTATED = ("core/placement", "core/model")
TESTS = ("tests/placement", "tests/model", "tests/queueing", "tests/state", "tests/replay", "tests/jobs", "tests/plan", "tests/api")
# A test may take so much longer than it did: the machine may be loaded, and a slower program is not a wrong one.
SLOWER, AT_LEAST_S = 6, 10
STUCK_S = 240  # no test's own limit ends a single operation on numbers of a billion digits
_COVERAGE = (sys.executable, "-m", "coverage")


@dataclass(frozen=True)
class Reach:
    """Which tests run which lines, and how long they take."""

    lines: dict[str, dict[int, set[str]]]
    durations: dict[str, float]

    def tests_for(self, mutant: Mutant, source: str) -> list[str]:
        """The fastest first; for what runs when the module is imported all that reach the module."""
        lines = self.lines.get(mutant.path, {})
        found = set().union(*(lines.get(line, set()) for line in statement_at(source, mutant.line)))
        if "" in found:
            found = set().union(*lines.values())
        return sorted(found - {""}, key=lambda name: (self.durations[name], name))


def statement_at(source: str, line: int) -> range:
    """The lines of the innermost statement around a line, but of a compound one only the head."""
    found = range(line, line + 1)
    for node in ast.walk(ast.parse(source)):  # outer ones first
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            end = body[0].lineno - 1 if body and not isinstance(node, ast.Match) else node.end_lineno or node.lineno
            if node.lineno <= line <= max(end, node.lineno):
                found = range(node.lineno, max(end, node.lineno) + 1)
    return found


def copy_tree(target: Path) -> None:
    """The files that git knows."""
    names = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, names.decode().split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def run_pytest(tree: Path, arguments: Sequence[str], environment: dict[str, str], *, measured: bool = False) -> subprocess.CompletedProcess:
    """The tests in a copy of the tree, which comes first on the path of imports."""
    command = [*_COVERAGE, "run"] if measured else [sys.executable]
    command += ["-m", "pytest", "-p", "tests.mutation.plugin"]
    command += ["-p", "no:cacheprovider", "-q", "-x", "--durations=0", "-m", "not cluster", *arguments]
    command += ["--timeout=600"] if measured else []  # being measured takes its time
    try:
        return subprocess.run(
            command,
            cwd=tree,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=None if measured else STUCK_S,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"nothing came of it within {STUCK_S} s")


def learn(tree: Path) -> Reach:
    """One run of all tests on the unchanged copy; they must pass."""
    durations = tree / "durations.json"
    done = run_pytest(tree, TESTS, {RECORD: str(durations)}, measured=True)
    if done.returncode:
        raise SystemExit(f"the tests fail without any mutant:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    data = coverage.CoverageData(str(tree / ".coverage"))
    data.read()
    lines = {
        Path(path).relative_to(tree).as_posix(): {line: set(names) for line, names in data.contexts_by_lineno(path).items()}
        for path in data.measured_files()
    }
    report = json.loads(subprocess.run([*_COVERAGE, "json", "-q", "-o", "-"], cwd=tree, capture_output=True, check=True).stdout)["totals"]
    print(f"{report['covered_branches']} of {report['num_branches']} branches covered", flush=True)
    return Reach(lines, json.loads(durations.read_text()))


class Trial:
    """One mutant at a time, in a copy of the tree."""

    def __init__(self, tree: Path, sources: dict[str, str], reach: Reach) -> None:
        self.tree, self.sources, self.reach = tree, sources, reach
        self._ticks = int(time.time()) + 1000

    def survives(self, mutant: Mutant) -> bool:
        """Whether all tests that reach it pass."""
        tests = self.reach.tests_for(mutant, self.sources[mutant.path])
        if not tests:
            return True
        chosen = self.tree / "chosen.json"
        chosen.write_text(json.dumps({name: AT_LEAST_S + SLOWER * self.reach.durations[name] for name in tests}))
        path, before = self.tree / mutant.path, (self.tree / mutant.path).stat()
        changed = mutate(mutant, self.sources[mutant.path])
        assert changed is not None
        path.write_text(changed)
        self._ticks += 2  # or else the byte code of the one before would do for this one
        os.utime(path, (self._ticks, self._ticks))
        try:
            files = sorted({name.split("::")[0] for name in tests})
            done = run_pytest(self.tree, files, {CHOOSE: str(chosen), "PYTHONDONTWRITEBYTECODE": "1"})
        finally:
            path.write_text(self.sources[mutant.path])
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        if done.returncode not in (0, 1, 2):  # 2: a module that cannot be imported
            raise SystemExit(f"{mutant}: pytest ended with {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done.returncode == 0


def wanted(sources: dict[str, str], seed: int, again: Path | None) -> Iterator[Mutant]:
    """The sample, or of an earlier one what survived and what stands now as it stood then."""
    if again is None:
        yield from sample(sources, seed)
        return
    left = {(e["path"], e["before"], e["after"]) for line in again.read_text().splitlines() if not (e := json.loads(line))["killed"]}
    for mutant in sample(sources, seed):
        if (mutant.path, *changed_line(mutant, sources[mutant.path])) in left:
            yield mutant


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="time for mutants, after the first run of the tests (default: 30)")
    parser.add_argument("--seed", type=int, default=1, help="which mutants (default: 1)")
    parser.add_argument("--only", nargs="+", default=MUTATED, metavar="PATH", help="folders to mutate")
    parser.add_argument("--again", type=Path, metavar="FILE", help="only those that survived in an earlier run with this seed")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "mutation.jsonl", help="every mutant and what became of it")
    args = parser.parse_args()
    earlier = args.again.read_text() if args.again else None
    args.out.parent.mkdir(parents=True, exist_ok=True)
    survivors, count = list[str](), 0
    with tempfile.TemporaryDirectory(prefix="topogate-mutation-") as folder:
        tree = Path(folder).resolve()
        copy_tree(tree)
        again = None
        if earlier is not None:
            again = tree / "earlier.jsonl"
            again.write_text(earlier)
        sources = read_sources(tree, args.only)
        print("running all tests once ...", flush=True)
        trial = Trial(tree, sources, learn(tree))
        end = time.monotonic() + args.minutes * 60
        with args.out.open("w") as out:
            for mutant in wanted(sources, args.seed, again):
                if time.monotonic() > end:
                    break
                started, survived = time.monotonic(), trial.survives(mutant)
                count += 1
                before, after = changed_line(mutant, sources[mutant.path])
                entry = {"path": mutant.path, "line": mutant.line, "operator": mutant.operator, "before": before, "after": after}
                entry |= {"killed": not survived, "seconds": round(time.monotonic() - started, 1)}
                out.write(json.dumps(entry) + "\n")
                out.flush()
                if survived:
                    survivors.append(f"{mutant}\n  - {before}\n  + {after}")
                    print(survivors[-1], flush=True)
    killed = count - len(survivors)
    print(f"{killed} of {count} mutants killed: {100 * killed / max(count, 1):.1f} %; seed {args.seed}; {args.out}")


if __name__ == "__main__":
    main()
