"""The encoding family: assignments to and from the wire through `core.model.wire.encoding`, as every reader and writer of a Workload does,
and Workloads to and from v1beta1 through `core.api.convert`, as the webhook does.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from core.api.convert import convert
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.model.wire.encoding import InvalidAssignment, compute_encoded_size, decode, encode
from core.names import API_VERSION, FIELDS_OF_V1BETA2, GROUP, OLD_API_VERSION
from tests.bench.encoding import build_assignment

_INNER = "shows an inner step of the peer's encoder, no result"
_HELPER = "is a helper of the peer that has no counterpart: domains are compared as tuples of values"
_LEFT_OUT = {
    "prefix_keys": _INNER,
    "domain_runs": _INNER,
    "has_node": _HELPER,
    "node_name_from_domain": _HELPER,
    "domain_belongs_to": _HELPER,
    "max_nodes": "is a search over many sizes: `python -m tests.bench.encoding --most` makes it",
}
_PEERS = ("v1beta2", "v1beta2_prefix_gate_on", "v1beta2_prefix_runs", "v1beta2_single")


def leave_out(case: Mapping[str, Any]) -> str | None:
    """Why a case is not replayed, if it is not."""
    return _LEFT_OUT.get(case["kind"])


def answer(case: Mapping[str, Any]) -> dict[str, Any]:
    """`{internal}` for `decode`, `{bytes}` for `size`, `{output}` for conversion, `{v1beta2}` else, from what is the input."""
    if case["kind"] == "convert":
        return {"output": convert(case["input"], f"{GROUP}/{case['to']}")}
    if case["kind"] == "convert_round_trip":
        there = convert(case["input"], API_VERSION)
        return {"v1beta2": there, "output": convert(there, OLD_API_VERSION)}
    if case["kind"] == "size":
        return {"bytes": compute_encoded_size(encode(build_assignment(case["scheme"], case["nodes"])))}
    if case["kind"] == "decode":
        return {"internal": _to_internal(decode(case["v1beta2"]))}
    return {"v1beta2": encode(_from_internal(case["internal"]))}


def differences(case: Mapping[str, Any], got: Mapping[str, Any]) -> list[str]:
    """Decoded exactly; encoded to what decodes to the same and is no longer than the peer's shortest; converted exactly, and back."""
    if case["kind"].startswith("convert"):
        return _conversion_differences(case, got)
    if case["kind"] == "size":
        most = min(case["prefix_gate_on_bytes"], case["single_bytes"])
        return [] if got["bytes"] <= most else [f"{got['bytes']} bytes, the peer {most}"]
    if case["kind"] == "decode":
        return [] if got["internal"] == _normal(case["internal"]) else [f"{got['internal']}, not {case['internal']}"]
    wanted, peers = _normal(case["internal"]), [case[name] for name in _PEERS if name in case]
    found = [f"the peer's {wire} is read otherwise" for wire in peers if _to_internal(decode(wire)) != wanted]
    try:
        if _to_internal(decode(got["v1beta2"])) != wanted:
            found.append("is read otherwise than it was given")
    except InvalidAssignment as error:
        found.append(f"cannot be read: {error}")
    most = min(map(compute_encoded_size, peers))
    if rule(case) is None and compute_encoded_size(got["v1beta2"]) > most:
        found.append(f"{compute_encoded_size(got['v1beta2'])} bytes, the peer {most}")
    return found


def rule(case: Mapping[str, Any]) -> str | None:
    """The deliberate differences: no bytes are saved by what the API server would refuse, and nothing is lost by conversion."""
    if case["kind"] == "convert":
        noted = FIELDS_OF_V1BETA2 in _annotations(answer(case)["output"])
        return "what v1beta1 cannot say, such as how an assignment was cut into slices, is kept in an annotation" if noted else None
    if case["kind"] in (*_LEFT_OUT, "size", "decode", "convert_round_trip") or case["internal"].get("domains"):
        return None
    return "an assignment to nothing keeps its empty list of slices, which the API requires"


def _conversion_differences(case: Mapping[str, Any], got: Mapping[str, Any]) -> list[str]:
    found = []
    for field in ("output", "v1beta2"):
        if field not in case:
            continue
        ours, theirs = _without_notes(got[field]), case[field]
        for one, other in zip(_assignments(ours), _assignments(theirs), strict=False):
            if (
                "slices" in one
                and "slices" in other
                and compute_encoded_size(one) <= compute_encoded_size(other)
                and decode(one) == decode(other)
            ):
                one.clear()
                one.update(other)
        if ours != theirs:
            found.append(f"{field}: {got[field]}, not {theirs}")
    if convert(got["output"], case["input"]["apiVersion"]) != case["input"]:
        found.append("what was converted does not come back as it was")
    return found


def _annotations(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    return obj["metadata"].get("annotations") or {}


def _without_notes(obj: Mapping[str, Any]) -> dict[str, Any]:
    copied = copy.deepcopy(dict(obj))
    annotations = copied["metadata"].pop("annotations", {})
    annotations.pop(FIELDS_OF_V1BETA2, None)
    copied["metadata"] |= {"annotations": annotations} if annotations else {}
    return copied


def _assignments(obj: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for given in obj["status"]["admission"]["podSetAssignments"]:
        yield given["topologyAssignment"]


def _from_internal(internal: Mapping[str, Any]) -> TopologyAssignment:
    domains = tuple(DomainCount(tuple(domain["values"]), domain["count"]) for domain in internal.get("domains") or ())
    return TopologyAssignment(tuple(internal["levels"]), domains)


def _to_internal(assignment: TopologyAssignment) -> dict[str, Any]:
    domains = [{"values": list(domain.values), "count": domain.count} for domain in assignment.domains]
    return {"levels": list(assignment.levels), "domains": domains}


def _normal(internal: Mapping[str, Any]) -> dict[str, Any]:
    return _to_internal(_from_internal(internal))
