"""Names and values of labels, as the Kubernetes API accepts them."""

import re

_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""What a DNS subdomain looks like, but for its length: the prefix of a label's name, or the name of an object."""
_MOST_NAME, _MOST_PREFIX = 63, 253


def is_label_name(text: str) -> bool:
    """Returns whether a text is a qualified name of Kubernetes: a name of 1 to 63 letters, digits, `-`, `_` and `.`, a letter or digit
    at both ends. A DNS prefix of at most 253 characters and `/` may precede it."""
    prefix, slash, name = text.rpartition("/")
    if slash and (not SUBDOMAIN.fullmatch(prefix) or len(prefix) > _MOST_PREFIX):
        return False
    return len(name) <= _MOST_NAME and _NAME.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """Returns whether a text may be the value of a label: empty, or a name as `is_label_name` accepts it, without a prefix."""
    return not text or (len(text) <= _MOST_NAME and _NAME.fullmatch(text) is not None)
