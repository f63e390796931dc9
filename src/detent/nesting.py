"""The limit on how deep lists and mappings may be nested in JSON, YAML and TOML from outside.

Depth is counted before a text is decoded: Python 3.14 decodes JSON of any depth without a `RecursionError`.
"""

import re

DEPTH_MAX = 100
TOO_DEEP = f"lists and mappings are nested too deep: at most {DEPTH_MAX} levels"


def is_too_deep(text: str) -> bool:
    """Whether the lists and objects in a JSON text are nested more than `DEPTH_MAX` levels deep."""
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return False
    depth = 0
    for token in re.finditer(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', text, re.DOTALL):  # a text, or a bracket
        if token[0] in "[{":
            depth += 1
            if depth > DEPTH_MAX:
                return True
        elif token[0] in "]}":
            depth -= 1
    return False
