"""Plugins of another package, good ones and bad ones. Tests hand this file to processes of its own; nothing here is of topogate."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any


class Prefers:
    """The placement of one name."""

    def __init__(self, *, prefers: str = "r2") -> None:
        self._name = prefers

    def score(self, group: Any, nodes: Any, candidates: Any) -> Any:
        return {one["name"]: 100.0 if one["name"] == self._name else 0.0 for one in candidates}


class Records:
    """Writes down what it is asked."""

    def __init__(self, *, path: str) -> None:
        self._path = path

    def _write(self, **what: Any) -> None:
        import json

        with Path(self._path).open("a") as file:
            file.write(json.dumps(what) + "\n")

    def score(self, group: Any, nodes: Any, candidates: Any) -> Any:
        self._write(group=group, nodes=nodes, candidates=candidates)
        return {one["name"]: 0 for one in candidates}

    def generate(self, group: Any, nodes: Any, placements: Any) -> Any:
        self._write(group=group, nodes=nodes, placements=placements)
        return placements


class Halves:
    """Parts each placement in two: by every other node."""

    def generate(self, group: Any, nodes: Any, placements: Any) -> Any:
        return [
            {"name": f"{one['name']}-{half}", "nodes": one["nodes"][half::2]}
            for one in placements
            for half in (0, 1)
            if one["nodes"][half::2]
        ]


class Waits:
    """Makes no placement, and names events that may change that."""

    def __init__(self, *, events: Any = None) -> None:
        self.events = events

    def generate(self, group: Any, nodes: Any, placements: Any) -> Any:
        return []


class Raises:
    def score(self, group: Any, nodes: Any, candidates: Any) -> Any:
        raise LookupError("the price list\nis gone")


class Leaves:
    """Raises what ends most programs."""

    def score(self, group: Any, nodes: Any, candidates: Any) -> Any:
        sys.exit(0)


class Hangs:
    def __init__(self, *, first: int = 0, path: str = os.devnull) -> None:
        self._first, self._path = first, path  # questions that it answers; what it touches when it hangs

    def score(self, group: Any, nodes: Any, candidates: Any) -> Any:
        self._first -= 1
        while self._first < 0:
            Path(self._path).touch()
            time.sleep(60)
        return Prefers().score(group, nodes, candidates)


class Eats:
    def score(self, group: Any, nodes: Any, candidates: Any) -> Any:
        eaten = []
        while True:
            eaten.append(bytearray(8 << 20))


class Prints:
    """On all that there is, and more than anybody reads."""

    def score(self, group: Any, nodes: Any, candidates: Any) -> Any:
        print('{"answer": [1, 2, 3]}\n' * 10000, flush=True)
        os.write(1, b"to the first\n")
        sys.stderr.write("to the second\n")
        return Prefers().score(group, nodes, candidates)


class Exits:
    def score(self, group: Any, nodes: Any, candidates: Any) -> Any:
        os._exit(7)


class Answers:
    """Whatever it is told to answer."""

    def __init__(self, *, code: str) -> None:
        self._code = code

    def score(self, group: Any, nodes: Any, candidates: Any) -> Any:
        return eval(self._code, {"names": [one["name"] for one in candidates]})

    def generate(self, group: Any, nodes: Any, placements: Any) -> Any:
        return eval(self._code, {"placements": placements, "nodes": sorted(nodes)})


class Assumes:
    def score(self, group: Any, nodes: Any, candidates: Any) -> Any:
        return {}

    def assume(self, group: Any, placement: Any) -> None: ...

    def revert(self, group: Any, placement: Any) -> None: ...


class Picky:
    def __init__(self, *, zone: str, colour: str = "red") -> None:
        if zone != "a":
            raise ValueError(f"there is no zone {zone}")

    def score(self, group: Any, nodes: Any, candidates: Any) -> Any:
        return {}


class Brood:
    """Starts a process of its own, which outlives what it does."""

    def __init__(self, *, path: str) -> None:
        self._path = path

    def score(self, group: Any, nodes: Any, candidates: Any) -> Any:
        import subprocess

        child = subprocess.Popen(["sleep", "600"])
        Path(self._path).write_text(str(child.pid))
        os._exit(7)


class Scribbles:
    """Writes on whatever is open, the line to the reconciler included."""

    def score(self, group: Any, nodes: Any, candidates: Any) -> Any:
        for open_file in range(3, 30):
            with contextlib.suppress(OSError):
                os.write(open_file, b'{"number": 3, "answer": "none"\n')
        return Prefers().score(group, nodes, candidates)


class Doubles:
    """Becomes two, and both answer."""

    def score(self, group: Any, nodes: Any, candidates: Any) -> Any:
        os.fork()
        return Prefers().score(group, nodes, candidates)


class Closes:
    """All that is open, and what Python thinks is its output; then it may sleep."""

    def __init__(self, *, sleeps: bool = False) -> None:
        self._sleeps = sleeps

    def score(self, group: Any, nodes: Any, candidates: Any) -> Any:
        sys.stdout.close()
        os.closerange(0, 30)
        if self._sleeps:
            time.sleep(600)
        return {}


not_callable = "a text"
