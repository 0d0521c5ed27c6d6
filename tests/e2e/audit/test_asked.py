"""What an API server's audit log is read as."""

from __future__ import annotations

import json
from pathlib import Path

from e2e.audit.asked import read_asked

ACCOUNT = "system:serviceaccount:topogate-system:topogate-reconciler"


def test_an_apply_that_made_the_object_has_used_both_verbs_by_which_the_server_judges_it(tmp_path: Path):
    (tmp_path / "audit.log").write_text("".join(json.dumps(patched(code)) + "\n" for code in (200, 201)))
    assert read_asked(tmp_path) == {ACCOUNT: {("topogate.dev", "podgroups", "patch"), ("topogate.dev", "podgroups", "create")}}


def test_audit_of_an_apply_to_an_existing_object_shows_patch_only(tmp_path: Path):
    (tmp_path / "audit.log").write_text(json.dumps(patched(200)))
    assert read_asked(tmp_path) == {ACCOUNT: {("topogate.dev", "podgroups", "patch")}}


def patched(code: int) -> dict[str, object]:
    return {
        "verb": "patch",
        "user": {"username": ACCOUNT},
        "userAgent": "topogate-reconciler",
        "objectRef": {"resource": "podgroups", "apiGroup": "topogate.dev"},
        "responseStatus": {"code": code},
        "annotations": {"authorization.k8s.io/decision": "allow"},
    }
