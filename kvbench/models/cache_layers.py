"""Cache layers of transformers without keys and values, which its older releases lack: no model can have them there."""

import transformers

from kvbench.errors import UserError

try:
    from transformers.cache_utils import DummyLayer, LinearAttentionLayer
except ImportError:
    DummyLayer = LinearAttentionLayer = type("Missing", (), {"__doc__": "Stands for a class that is not there."})
    KNOWN = False
else:
    KNOWN = True

__all__ = ["DummyLayer", "LinearAttentionLayer", "check_known"]


def check_known(kind: str) -> None:
    """Raise UserError where transformers has no cache layer for layers of this kind."""
    if not KNOWN:
        raise UserError(
            f"this model has layers of {kind!r}, whose caches transformers {transformers.__version__} does not have: "
            "use a newer release"
        )
