"""The reconciler process with waitForPodsReady on: `--rules` takes the fields of PodsReadyRules as JSON, all else is as ever."""

from __future__ import annotations

import asyncio
import json
import sys

from core.jobs.kinds import KINDS
from core.model.pods_ready import PodsReadyRules
from core.runtime import logs
from reconciler.__main__ import serve
from reconciler.settings import parse


def main() -> None:
    arguments = sys.argv[1:]
    at = arguments.index("--rules")
    rules = PodsReadyRules(**json.loads(arguments[at + 1]))
    settings = parse(arguments[:at] + arguments[at + 2 :])
    logs.configure(settings.log_level)
    asyncio.run(serve(settings, KINDS, rules))


if __name__ == "__main__":
    main()
