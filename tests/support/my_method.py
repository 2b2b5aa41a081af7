"""Your own method, as docs/adding-a-method.md shows it: keep the tokens with small keys."""

from dataclasses import dataclass, field

from kvbench.methods import Eviction, Scoring


@dataclass
class KeyNorm(Scoring):
    """Tokens with small keys tend to be attended to: score by the negative norm."""

    recent: int = 8

    def protected(self, budget):
        return self.recent

    def votes(self, layer):  # [num_attention_heads, n]
        norms = layer.keys.float().norm(dim=-1)  # [num_key_value_heads, n]
        return -norms.repeat_interleave(layer.num_attention_heads // len(norms), dim=0)


@dataclass
class MyMethod(Eviction):
    scoring: Scoring = field(default_factory=KeyNorm)
