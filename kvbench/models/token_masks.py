"""Masks that say which token attends to which, beside those that transformers has made by `no_mask`."""

import torch
from torch import Tensor


def is_causal(mask: Tensor, seen: int, window: int | None) -> bool:
    """Whether a mask [..., q, keys] of the last q of `seen` tokens hides later tokens and no others, or also those
    before the `window` last ones.

    True or 0 is a token to attend to, False or a number of the size of -∞ one that is hidden. The keys are the first
    tokens, with room after them, or as many of the last ones.
    """
    queries, keys = mask.shape[-2:]
    at = torch.arange(seen - queries, seen, device=mask.device)[:, None]
    of = torch.arange(keys, device=mask.device) + max(seen - keys, 0)
    visible = mask if mask.dtype == torch.bool else mask == 0
    hidden = ~visible if mask.dtype == torch.bool else mask <= torch.finfo(mask.dtype).min / 2
    earlier = of <= at
    expected = [earlier] if window is None else [earlier, earlier & (of > at - window)]
    return any(bool((visible == shown).all() and (hidden == ~shown).all()) for shown in expected)
