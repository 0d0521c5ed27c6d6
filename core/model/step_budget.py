"""The work of one decision: a number of steps that all searches of the decision share.

A step is worth about a microsecond of processor time, so that a number stands for a time without reading a clock: the
same question gets the same answer on every machine. The first try of each search is counted and made in any case;
further ones are made as long as there are steps left. A search that stops for want of steps returns its best answer so
far.
"""

from dataclasses import dataclass

DECISION_STEPS = 700_000  # of everything that one workload is decided by
PLACEMENT_STEPS = 60_000  # of one search for a place, preemption aside
SENTENCE = "The search stopped at its limit of steps; there may be a fit that it did not find"


@dataclass(slots=True)
class StepBudget:
    """The steps that are left, and the whole where it is a part of another budget.

    `ran_out`: whether a search has stopped because none were left.
    """

    left: int = PLACEMENT_STEPS
    whole: "StepBudget | None" = None
    ran_out: bool = False

    def split_off(self, steps: int) -> "StepBudget":
        """Returns a budget of so many steps, of which it has none left once this one has none. What it spends is charged to this one,
        too; what it does not spend stays here."""
        return StepBudget(steps, self)

    def charge(self, steps: int) -> None:
        """Subtracts steps that are made in any case, here and in the whole; the rest may become negative."""
        self.left -= steps
        if self.whole is not None:
            self.whole.charge(steps)

    def spend(self, steps: int) -> bool:
        """Subtracts steps about to be made, if any are left here and in the whole, and returns True; the rest may become negative. Else
        returns False, and notes that the search must stop."""
        if self.has_left():
            self.charge(steps)
            return True
        self.stop()
        return False

    def has_left(self) -> bool:
        """Whether there are steps left, here and in the whole."""
        return self.left > 0 and (self.whole is None or self.whole.has_left())

    @property
    def most(self) -> int:
        """How many steps are left, here and in the whole; 0 or less where none are."""
        return self.left if self.whole is None else min(self.left, self.whole.most)

    def stop(self) -> None:
        """Sets `ran_out`, here and in the whole: a search has stopped for want of steps."""
        self.ran_out = True
        if self.whole is not None:
            self.whole.stop()


class Unlimited(StepBudget):
    """Steps without end, for a single question that is not a search."""

    def charge(self, steps: int) -> None:
        """Counts nothing."""


UNLIMITED = Unlimited(2**62)
