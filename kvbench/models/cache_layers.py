"""Cache layers of transformers without keys and values. Older releases lack them, and models with such layers."""

import transformers

from kvbench.errors import UserError

try:
    from transformers.cache_utils import DummyLayer, LinearAttentionLayer
except ImportError:
    DummyLayer = LinearAttentionLayer = type("Missing", (), {"__doc__": "In place of a missing class."})
    AVAILABLE = False
else:
    AVAILABLE = True

__all__ = ["DummyLayer", "LinearAttentionLayer", "check_known"]


def check_known(kind: str) -> None:
    """Raise UserError if transformers has no cache layer for layers of this kind."""
    if not AVAILABLE:
        raise UserError(
            f"this model has layers of {kind!r}, whose caches transformers {transformers.__version__} does not have: "
            "use a newer release"
        )
