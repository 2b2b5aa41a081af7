"""Values as texts in Hydra's grammar of overrides, from which Hydra reads the same values."""

import re
from collections.abc import Mapping

_BARE = re.compile(r"[A-Za-z_./][\w./-]*", re.ASCII)  # a text that needs no quotes
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "nan", "inf"}


def override_text(value: object) -> str:
    """The text after the `=` of an override, for a `value` of JSON's types."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{override_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(override_text, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if not isinstance(value, str) or (_BARE.fullmatch(value) and value.lower() not in _WORDS):
        return str(value)
    return "'" + re.sub(r"(\\*)('|$)", lambda m: str(m[1]) * 2 + ("\\'" if m[2] else ""), value) + "'"
