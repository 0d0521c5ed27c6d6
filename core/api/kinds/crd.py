"""How the API server offers a kind: names, scope, columns. A kind carries one of these as its class variable `crd`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from core.names import GROUP


@dataclass(frozen=True)
class PrinterColumn:
    """A column of `kubectl get`; priority 1 shows with `-o wide` only."""

    name: str
    json_path: str
    type: Literal["string", "integer", "date"]
    description: str
    priority: int = 0


@dataclass(frozen=True)
class Crd:
    plural: str
    scope: Literal["Cluster", "Namespaced"]
    short_names: tuple[str, ...] = ()
    has_status: bool = False
    columns: tuple[PrinterColumn, ...] = ()
    group: str = GROUP


AGE = PrinterColumn("Age", ".metadata.creationTimestamp", "date", "Time since the object was created")
