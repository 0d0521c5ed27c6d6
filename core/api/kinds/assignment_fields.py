"""The topology assignment as the API server stores it: domains in slices, each column of values and counts compressed.

A full cluster's assignment must fit in one object (etcd takes 1.5 MiB), so a column that is the same for every domain is
one value, and values that share a prefix or suffix keep only what differs. `core.model` encodes and decodes.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from core.api.kinds.marks import ATOMIC_LIST, Mark, add_rule
from core.api.kinds.meta import MAX_LEVELS, Int32, LevelLabel, NodeLabelValue, Wire

MAX_SLICES = 1000
MAX_DOMAINS_PER_SLICE = 100_000


class IndividualValues(Wire):
    """One value per domain: prefix + root + suffix."""

    prefix: NodeLabelValue | None = None
    """What all values start with."""
    suffix: NodeLabelValue | None = None
    """What all values end with."""
    roots: Annotated[tuple[NodeLabelValue, ...], Field(min_length=1, max_length=MAX_DOMAINS_PER_SLICE), ATOMIC_LIST]
    """What is between, one per domain."""


class LevelValues(Wire):
    """The values of one level in one slice."""

    rules: ClassVar[tuple[Mark, ...]] = (
        add_rule("has(self.universal) != has(self.individual)", "exactly one of universal and individual must be set"),
    )

    universal: NodeLabelValue | None = None
    """The value of every domain."""
    individual: IndividualValues | None = None
    """A value per domain."""


class PodCounts(Wire):
    """How many pods each domain gets."""

    rules: ClassVar[tuple[Mark, ...]] = (
        add_rule("has(self.universal) != has(self.individual)", "exactly one of universal and individual must be set"),
    )

    universal: Annotated[Int32, Field(ge=1)] | None = None
    """The count of every domain."""
    individual: (
        Annotated[tuple[Annotated[Int32, Field(ge=1)], ...], Field(min_length=1, max_length=MAX_DOMAINS_PER_SLICE), ATOMIC_LIST] | None
    ) = None
    """A count per domain."""


class AssignmentSlice(Wire):
    """Some domains of the assignment, column by column."""

    rules: ClassVar[tuple[Mark, ...]] = (
        add_rule(
            "!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount",
            "podCounts.individual must have domainCount entries",
        ),
        add_rule(
            "self.valuesPerLevel.all(v, !has(v.individual) || size(v.individual.roots) == self.domainCount)",
            "valuesPerLevel[*].individual.roots must have domainCount entries",
        ),
    )

    domain_count: Annotated[Int32, Field(ge=1)]
    """The number of domains."""
    values_per_level: Annotated[tuple[LevelValues, ...], Field(min_length=1, max_length=MAX_LEVELS), ATOMIC_LIST]
    """The domains' values, one entry per level."""
    pod_counts: PodCounts
    """The domains' pod counts."""


class TopologyAssignmentFields(Wire):
    """Which domain gets how many pods."""

    rules: ClassVar[tuple[Mark, ...]] = (
        add_rule(
            "self.slices.all(s, size(s.valuesPerLevel) == size(self.levels))",
            "valuesPerLevel must have one entry for each of the levels",
        ),
    )

    levels: Annotated[tuple[LevelLabel, ...], Field(min_length=1, max_length=MAX_LEVELS), ATOMIC_LIST]
    """The node labels that pods are given selectors for: kubernetes.io/hostname alone where that identifies a node."""
    slices: Annotated[tuple[AssignmentSlice, ...], Field(max_length=MAX_SLICES), ATOMIC_LIST]
    """The domains; all slices together are the assignment."""
