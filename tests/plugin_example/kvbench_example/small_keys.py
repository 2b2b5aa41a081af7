"""A method: tokens with small keys stay."""

from dataclasses import dataclass, field

from kvbench.methods import Eviction, Scoring


@dataclass
class SmallKeys(Scoring):
    """Score by the negative norm of a token's key; the last `recent` tokens stay."""

    recent: int = 8

    def protected(self, budget):
        return self.recent

    def votes(self, layer):  # [num_attention_heads, n]
        norms = layer.keys.float().norm(dim=-1)  # [num_key_value_heads, n]
        return -norms.repeat_interleave(layer.num_attention_heads // len(norms), dim=0)


@dataclass
class KeepSmallKeys(Eviction):
    scoring: Scoring = field(default_factory=SmallKeys)
