"""What a command line gives: which cluster, and by what its reconciler decides. Costs nothing to import."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

WIDE = "wide"  # a form of output: more columns


@dataclass(frozen=True, slots=True)
class ClusterSource:
    """Files that describe a cluster, or else an API server; None: as kubectl has it. `namespace` is of what names none itself."""

    files: Sequence[Path] = ()
    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class DecisionInputs:
    """By what the reconciler decides: it should be the same as where it runs."""

    config: str | None = None
    gates: Sequence[str] = ()
    profile: str | None = None
