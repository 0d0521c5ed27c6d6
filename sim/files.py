"""Files of the chart that a world is made from, each read once in a process."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml


@cache
def read_yaml(path: Path) -> dict[str, Any]:
    """The object in a file. It is not to be changed."""
    found: dict[str, Any] = yaml.load(path.read_text(), yaml.CSafeLoader)
    return found
