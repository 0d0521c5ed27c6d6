"""Replays a vector file of one family through the code that production uses.

    python -m tests.replay FAMILY FILE.jsonl [--answers OUT.jsonl]

Compares each answer with the file's, prints the ids of what differs and ends with `N passed, N failed`
(exit 1 if any failed). With --answers nothing is compared: each case's answer is written instead.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.replay import encoding, nodes, placement, podsets, scheduling, ungater, validation


@dataclass(frozen=True)
class Family:
    """How cases of one family are answered and judged.

    `answer` sees a case without its expected part; `differences` compares an answer with it.
    `rule` names the deliberate difference (decision 2 of docs/decisions/0004) that applies, if any; `leave_out` says why
    a case is not replayed at all, if it is not.
    """

    answer: Callable[[dict[str, Any]], dict[str, Any]]
    differences: Callable[[dict[str, Any], dict[str, Any]], list[str]]
    expected: str
    rule: Callable[[dict[str, Any]], str | None]
    leave_out: Callable[[dict[str, Any]], str | None] = lambda case: None


FAMILIES = {
    "encoding": Family(encoding.answer, encoding.differences, "", encoding.rule, encoding.leave_out),
    "nodes": Family(nodes.answer, nodes.differences, "", nodes.rule),
    "placement": Family(placement.answer, placement.differences, "expect", placement.rule),
    "podsets": Family(podsets.answer, podsets.differences, "", podsets.rule, podsets.leave_out),
    "scheduling": Family(scheduling.answer, scheduling.differences, "", scheduling.rule),
    "validation": Family(validation.answer, validation.differences, "", validation.rule),
    "ungater": Family(ungater.answer, ungater.differences, "", ungater.rule),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description=__doc__.splitlines()[0])
    parser.add_argument("family", choices=sorted(FAMILIES))
    parser.add_argument("file", type=Path)
    parser.add_argument("--answers", type=Path, metavar="OUT.jsonl")
    options = parser.parse_args(arguments)
    family = FAMILIES[options.family]
    try:
        cases = read_cases(options.file)
        if options.answers:
            options.answers.open("w").close()
    except (OSError, ValueError) as error:
        print(f"replay: {error}", file=sys.stderr)
        return 1
    reasons = Counter(reason for case in cases if (reason := family.leave_out(case)))
    cases = [case for case in cases if not family.leave_out(case)]
    for reason, count in reasons.items():
        print(f"{count} left out: {reason}")
    if not cases:
        print(f"{options.file} has no case", file=sys.stderr)
        return 1
    return write_answers(family, cases, options.answers) if options.answers else compare(family, cases)


def read_cases(path: Path) -> list[dict[str, Any]]:
    """One case a line. Raises OSError, or ValueError with the line that is no case."""
    cases = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        try:
            case = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: not JSON ({error})") from None
        if not isinstance(case, dict) or "id" not in case:
            raise ValueError(f"{path}, line {number}: not a case, which is an object with an id")
        cases.append(case)
    return cases


def write_answers(family: Family, cases: list[dict[str, Any]], out: Path) -> int:
    with out.open("w") as file:
        for case in cases:
            rule = family.rule(case)
            blind = {key: value for key, value in case.items() if key != family.expected}
            record = {"id": case["id"], "answer": family.answer(blind)} | ({"rule": rule} if rule else {})
            file.write(json.dumps(record) + "\n")
    print(f"{len(cases)} answers written to {out}")
    return 0


def compare(family: Family, cases: list[dict[str, Any]]) -> int:
    failed = 0
    for case in cases:
        blind = {key: value for key, value in case.items() if key != family.expected}
        found = family.differences(case, family.answer(blind))
        if found:
            failed += 1
            print(f"{case['id']}: {'; '.join(found)}")
    print(f"{len(cases) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
