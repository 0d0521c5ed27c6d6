"""Files of the chart that a world is made from, each read once in a process."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml


@cache
def read_yaml(path: Path) -> Any:
    """The object, or the list of objects, in a file. It is not to be changed."""
    return yaml.load(path.read_text(), yaml.CSafeLoader)
