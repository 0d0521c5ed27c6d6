"""No event loop but those of the tests themselves (tests/runtime/conftest.py says why)."""

from __future__ import annotations

import asyncio

asyncio.set_event_loop(None)
