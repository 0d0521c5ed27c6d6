"""What service accounts asked of an API server, by its own audit log: RBAC is compared with what was really used.

The server's own log and not a hook in our client: it names the verb, the resource and the subresource by which it judged.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from pathlib import Path

from core.runtime.rbac_rules import Right

_DECISION = "authorization.k8s.io/decision"  # an admission plugin says 403, too


def write_policy(folder: Path, users: Iterable[str]) -> Mapping[str, str]:
    """Flags by which an API server writes down what these users ask of it, in `folder`."""
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": sorted(users)}, {"level": "None"}],
    }
    (folder / "policy.json").write_text(json.dumps(policy))
    # Long watches are told of when they begin and when they end; one file, since a rotated one would have to be looked for.
    return {"audit-policy-file": str(folder / "policy.json"), "audit-log-path": str(folder / "audit.log"), "audit-log-maxsize": "4000"}


def read_asked(folder: Path, *, refused: bool = False) -> dict[str, set[Right]]:
    """By user what its process was granted and used; with `refused` what it asked for and may not. A process has the name of its
    account; others that borrow the account, as the command does in a test, are left out.
    """
    asked: dict[str, set[Right]] = defaultdict(set)
    with (folder / "audit.log").open() as log:
        for line in log:
            event = json.loads(line)
            about = event.get("objectRef")
            if about is None or not event.get("userAgent", "").startswith(event["user"]["username"].rpartition(":")[2]):
                continue
            if (event.get("annotations", {}).get(_DECISION) == "forbid") != refused:
                continue
            resource = "/".join(filter(None, (about.get("resource"), about.get("subresource"))))
            verbs = {event["verb"]}
            if event["verb"] == "patch" and event.get("responseStatus", {}).get("code") == HTTPStatus.CREATED:
                verbs.add("create")  # an apply of what is not there is judged by both verbs, and the log names the one that was sent
            asked[event["user"]["username"]] |= {(about.get("apiGroup", ""), resource, verb) for verb in verbs}
    return asked
