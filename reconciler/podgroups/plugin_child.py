"""The process of one plugin of another package: loads it, and answers one question after the other. Started by
`reconciler.podgroups.plugin_process` alone; imports nothing of topogate, so that it is small and starts at once.

Lines on the socket that is its standard input: a number and JSON one way, JSON with that number the other. What a
plugin prints goes to the log of the reconciler. A process ends when its reconciler is gone: it reads the end of the
socket, or an alarm ends a plugin that never returns.
"""

import contextlib
import importlib.metadata
import inspect
import json
import math
import operator
import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO

Json = dict[str, Any]
GENERATE, SCORE = "generate", "score"
STATE = ("assume", "revert")
RAISED, MEMORY, NONSENSE, REFUSED = "raised", "memory", "nonsense", "refused"
ALARM_S = 5.0  # beyond the limit that the reconciler keeps: it is only for one that is gone
_SHOWN = 4000  # letters of a traceback


class _Nonsense(Exception):
    """An answer of the plugin that is none."""


class _Refused(Exception):
    """The plugin cannot be used as requested; the reply has the reason."""

    def __init__(self, **reply: Any) -> None:
        super().__init__()
        self.reply = reply


class Cluster:
    """The nodes as they were received, and what plugins get of them."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._labels: list[Json] = []
        self._places: dict[str, int] = {}

    def add_nodes(self, nodes: Sequence[Sequence[Any]]) -> None:
        """Adds nodes, each a name and its labels; their indexes follow the order in which they come."""
        for name, labels in nodes:
            self._places[name] = len(self._names)
            self._names.append(name)
            self._labels.append(labels)

    def list_nodes(self, question: Json) -> dict[str, Json]:
        """Returns the nodes by name: `labels`, the `allocatable` and `free` amounts of a question by resource, and `usable`: whether pods
        can go there."""
        amounts, usable = question["amounts"], question["usable"]
        found: dict[str, Json] = {}
        for at, name in enumerate(self._names):
            allocatable = {resource: of["allocatable"][at] for resource, of in amounts.items()}
            free = {resource: of["free"][at] for resource, of in amounts.items()}
            found[name] = {"labels": self._labels[at], "allocatable": allocatable, "free": free, "usable": usable[at]}
        return found

    def read_placement(self, shown: Json) -> Json:
        """Returns a new placement with the name and the rank of `shown`, and the names of its nodes instead of their indexes."""
        return {"name": shown["name"], "rank": shown["rank"], "nodes": [self._names[at] for at in shown["nodes"]]}

    def read_candidate(self, shown: Json) -> Json:
        """Returns a candidate: a placement (`read_placement`), with `pods` and `room` as they are in `shown`. Its `assignment` has, for
        each pod set, the number of pods by the name of the node."""
        sets = [{self._names[at]: count for at, count in zip(*of_set, strict=True)} for of_set in shown["assignment"]]
        return {**self.read_placement(shown), "pods": shown["pods"], "room": shown["room"], "assignment": sets}

    def find_places(self, names: Any, placement: str) -> list[int]:
        """Returns the indexes of nodes by name, in the order of `names`. Raises _Nonsense where one is not known, or `names` is no list of
        names; `placement` is named in the message.
        """
        try:
            return [self._places[name] for name in names]
        except KeyError as error:
            raise _Nonsense(f"placement {placement!r} has a node {error.args[0]!r}, which is not there") from None
        except TypeError:
            raise _Nonsense(f"the nodes of placement {placement!r} are no list of names") from None


# --- loading ------------------------------------------------------------------------------------------------------


def load(order: Json) -> Any:
    """Returns the plugin that an order (`Launch.order` as JSON) names, made with its arguments. Raises _Refused where it is not callable,
    takes other arguments, has `assume` or `revert`, or lacks the method of its role; and whatever the plugin raises."""
    target = importlib.metadata.EntryPoint(order["name"], order["value"], "").load()
    if not callable(target):
        raise _Refused(why="the entry point is neither a class nor a function that makes a plugin")
    _judge_arguments(target, order["arguments"])
    plugin = target(**order["arguments"])
    if any(callable(getattr(plugin, name, None)) for name in STATE):
        raise _Refused(why="it has assume and revert: what a plugin takes for granted cannot be shared with another process")
    if not callable(getattr(plugin, order["role"], None)):
        raise _Refused(why=f"it has no method {order['role']}")
    return plugin


def list_events(plugin: Any, known: Sequence[str]) -> list[str] | None:
    """Returns the events that a plugin names in `events`, sorted; None where it names none. Raises _Refused where one is not `known`, or
    `events` is no list, tuple or set."""
    events = getattr(plugin, "events", None)
    if events is None:
        return None
    unknown = [name for name in events if name not in known] if isinstance(events, list | tuple | set | frozenset) else [events]
    if unknown:
        raise _Refused(why=f"events: {str(unknown[0])[:60]!r} is not accepted; a list of {', '.join(known)} is")
    return sorted(events)


def _judge_arguments(target: Callable[..., Any], given: Mapping[str, Any]) -> None:
    taken = inspect.signature(target).parameters.values()
    named = [one for one in taken if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    if not any(one.kind is one.VAR_KEYWORD for one in taken):
        unknown = [name for name in given if name not in [one.name for one in named]]
        if unknown:
            raise _Refused(unknown=unknown, known=[one.name for one in named])
    missing = [one.name for one in named if one.default is one.empty and one.name not in given]
    if missing:
        raise _Refused(missing=missing)


# --- answering ----------------------------------------------------------------------------------------------------


def answer(plugin: Any, cluster: Cluster, question: Json) -> Any:
    """Returns the plugin's checked answer. For SCORE these are the scores in the order of the candidates, as finite numbers. Else they are
    placements: `name`, `rank`, `nodes` by their indexes, and as `parent` what `Parents.find` returns. Raises _Nonsense for any other
    answer, and whatever the plugin raises."""
    nodes = cluster.list_nodes(question)
    if question["ask"] == SCORE:
        candidates = [cluster.read_candidate(shown) for shown in question["candidates"]]
        return _validate_scores(plugin.score(question["group"], nodes, candidates), [one["name"] for one in candidates])
    parents = [cluster.read_placement(shown) for of_rank in question["placements"] for shown in of_rank]
    found = plugin.generate(question["group"], nodes, parents)
    if not isinstance(found, list | tuple):
        raise _Nonsense(f"generate answers {type(found).__name__}; a list of placements is expected")
    within = Parents(question["placements"])
    return [_validate_placement(one, cluster, within) for one in found]


def _validate_scores(found: Any, names: Sequence[str]) -> list[float]:
    if not isinstance(found, Mapping):
        raise _Nonsense(f"score answers {type(found).__name__}; an object of scores by the names of the candidates is expected")
    known = set(names)
    for name in found:
        if name not in known:
            raise _Nonsense(f"there is a score for {name!r}, which is no candidate")
    for name in names:
        if name not in found:
            raise _Nonsense(f"there is no score for {name!r}")
    return [_number(found[name], name) for name in names]


def _number(score: Any, name: str) -> float:
    try:
        number = float(score)
    except (TypeError, ValueError, OverflowError):
        raise _Nonsense(f"the score of {name!r} is no number") from None
    if not math.isfinite(number):
        raise _Nonsense(f"the score of {name!r} is no finite number")
    return number


class Parents:
    """The placements that there were before, by their nodes."""

    def __init__(self, ranks: Sequence[Sequence[Json]]) -> None:
        self._ranks = ranks
        self._members = [[set(shown["nodes"]) for shown in of_rank] for of_rank in ranks]
        self._of_node: dict[int, list[tuple[int, int]]] = {}
        for rank, of_rank in enumerate(ranks):
            for at, shown in enumerate(of_rank):
                for place in shown["nodes"]:
                    self._of_node.setdefault(place, []).append((rank, at))

    def find(self, places: Sequence[int]) -> tuple[int, int] | None:
        """Returns where the first earlier placement is that has all nodes with the indexes `places` (at least one). That is the index of
        its list in `ranks`, and its position there. None where no placement has."""
        return next((where for where in self._of_node.get(places[0], ()) if self._members[where[0]][where[1]].issuperset(places)), None)

    def rank(self, where: tuple[int, int]) -> int:
        """Returns the field `rank` of one of the earlier placements. `where`, as `find` returns it: which list of `ranks` it is in, and its
        position there. That field is a whole number from 0, not the number of the list. Raises IndexError where there is none."""
        return int(self._ranks[where[0]][where[1]]["rank"])


def _validate_placement(one: Any, cluster: Cluster, parents: Parents) -> Json:
    if not isinstance(one, Mapping) or not isinstance(one.get("name"), str):
        raise _Nonsense("a placement has no name")
    name = one["name"]
    places = cluster.find_places(one.get("nodes"), name)
    if not places:
        raise _Nonsense(f"placement {name!r} has no nodes")
    where = parents.find(places)
    if where is None:
        raise _Nonsense(f"placement {name!r} is not within one of those that there were before")
    return {"name": name, "rank": _rank(one, parents.rank(where)), "nodes": places, "parent": where}


def _rank(one: Mapping[str, Any], usual: int) -> int:
    try:
        return operator.index(one.get("rank", usual))
    except TypeError:
        raise _Nonsense(f"the rank of placement {one['name']!r} is no whole number") from None


# --- the process --------------------------------------------------------------------------------------------------


def main() -> None:
    """Answers the questions of the reconciler until that closes the socket. Ends the process with status 3 where it is out of memory."""
    own = socket.socket(fileno=os.dup(0))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # if the pod has too little memory, this process ends and not the reconciler
    with own, own.makefile("rb") as questions, own.makefile("wb") as replies:
        try:
            _serve(questions, replies)
        except BrokenPipeError:
            pass  # the reconciler does not read any more
        except MemoryError:
            os._exit(3)


def _serve(questions: BinaryIO, replies: BinaryIO) -> None:
    cluster, plugin, limit_s = Cluster(), None, 0.0
    for line in questions:
        first, _, rest = line.partition(b" ")
        number, message = int(first), json.loads(rest)
        if "nodes" in message:
            cluster = Cluster() if message["first"] else cluster
            cluster.add_nodes(message["nodes"])
            if message["last"]:
                _reply(replies, number, {"answer": None})
        elif "load" in message:
            limit_s = message["limit_s"]
            _limit(message["memory_bytes"])
            loaded, reply = _run_guarded(_load_with_events, message["load"], message["start_s"])
            plugin, events = loaded or (None, None)
            _reply(replies, number, {**reply, "answer": events})
        else:
            found, reply = _run_guarded(partial(answer, plugin, cluster), message, limit_s)
            _reply(replies, number, {**reply, "answer": found})


def _load_with_events(order: Json) -> tuple[Any, list[str] | None]:
    plugin = load(order)
    return plugin, list_events(plugin, order["events"]) if order["role"] == GENERATE else None


def _run_guarded(work: Callable[[Json], Any], message: Json, limit_s: float) -> tuple[Any, Json]:
    """What comes of the plugin's code, and what to reply if nothing does."""
    signal.setitimer(signal.ITIMER_REAL, limit_s + ALARM_S)
    try:
        return work(message), {}
    except _Refused as error:
        return None, {"failed": REFUSED, **error.reply}
    except _Nonsense as error:
        return None, {"failed": NONSENSE, "why": str(error)}
    except MemoryError:
        return None, {"failed": MEMORY, "why": "MemoryError"}
    except BaseException as error:  # whatever a plugin raises, the process must go on and report it
        return None, {"failed": RAISED, "why": _format_in_one_line(error), "trace": traceback.format_exc()[-_SHOWN:]}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        with contextlib.suppress(Exception):  # a plugin may have closed it
            sys.stdout.flush()


def _reply(replies: BinaryIO, number: int, reply: Json) -> None:
    replies.write(json.dumps({"number": number, **reply}).encode() + b"\n")
    replies.flush()


def _limit(memory_bytes: int) -> None:
    """Address space, all that the process maps counted: what goes beyond is a MemoryError where it happens."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, highest = resource.getrlimit(resource.RLIMIT_AS)
    most = memory_bytes if highest == resource.RLIM_INFINITY else min(memory_bytes, highest)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _format_in_one_line(error: BaseException) -> str:
    try:
        said = str(error)
    except Exception:
        said = ""
    return " ".join(f"{type(error).__name__}: {said}".split())[:300]


if __name__ == "__main__":
    main()
