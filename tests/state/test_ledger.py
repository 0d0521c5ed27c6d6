"""What the ledger leaves behind."""

from __future__ import annotations

import gc
import weakref

from core.state.ledger import Ledger


def test_ledger_goes_at_once_without_the_collector_of_cycles():
    """Each minute's audit makes one. What lives while all objects are collected may be left out of collections from then on."""
    gc.disable()
    try:
        ledger = Ledger()
        gone = weakref.ref(ledger)
        del ledger
        assert gone() is None
    finally:
        gc.enable()
