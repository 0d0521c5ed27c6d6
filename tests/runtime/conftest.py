"""No event loop but those of the tests themselves.

On Python 3.11 looptime asks the policy for the current loop also in tests that are not async, which makes one that nobody closes: with
warnings as errors the session then fails at its end. Saying once that there is no current loop keeps it from being made.
"""

from __future__ import annotations

import asyncio

asyncio.set_event_loop(None)
