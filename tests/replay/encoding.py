"""The encoding family: assignments to and from the wire through `core.model.encoding`, as every reader and writer of a Workload does."""

from collections.abc import Mapping
from typing import Any

from core.model.assignment import DomainCount, TopologyAssignment
from core.model.encoding import InvalidAssignment, decode, encode, encoded_size
from tests.bench.encoding import build_assignment

_INNER = "shows an inner step of the peer's encoder, no result"
_CONVERSION = "conversion between v1beta1 and v1beta2 belongs to the conversion webhook"
_HELPER = "is a helper of the peer that has no counterpart: domains are compared as tuples of values"
_LEFT_OUT = {
    "prefix_keys": _INNER,
    "domain_runs": _INNER,
    "convert": _CONVERSION,
    "convert_round_trip": _CONVERSION,
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
    """`{internal}` for `decode`, `{bytes}` for `size`, `{v1beta2}` else, from the one field that is the input."""
    if case["kind"] == "size":
        return {"bytes": encoded_size(encode(build_assignment(case["scheme"], case["nodes"])))}
    if case["kind"] == "decode":
        return {"internal": _to_internal(decode(case["v1beta2"]))}
    return {"v1beta2": encode(_from_internal(case["internal"]))}


def differences(case: Mapping[str, Any], got: Mapping[str, Any]) -> list[str]:
    """Decoded exactly; encoded to what decodes to the same and is no longer than the peer's shortest."""
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
    most = min(map(encoded_size, peers))
    if rule(case) is None and encoded_size(got["v1beta2"]) > most:
        found.append(f"{encoded_size(got['v1beta2'])} bytes, the peer {most}")
    return found


def rule(case: Mapping[str, Any]) -> str | None:
    """The one deliberate difference: no bytes are saved by what the API server would refuse."""
    if case["kind"] in (*_LEFT_OUT, "size", "decode") or case["internal"].get("domains"):
        return None
    return "an assignment to nothing keeps its empty list of slices, which the API requires"


def _from_internal(internal: Mapping[str, Any]) -> TopologyAssignment:
    domains = tuple(DomainCount(tuple(domain["values"]), domain["count"]) for domain in internal.get("domains") or ())
    return TopologyAssignment(tuple(internal["levels"]), domains)


def _to_internal(assignment: TopologyAssignment) -> dict[str, Any]:
    domains = [{"values": list(domain.values), "count": domain.count} for domain in assignment.domains]
    return {"levels": list(assignment.levels), "domains": domains}


def _normal(internal: Mapping[str, Any]) -> dict[str, Any]:
    return _to_internal(_from_internal(internal))
