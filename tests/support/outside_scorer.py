"""A scorer from outside: the attention of the last queries, times how far a key lies from the mean key."""

from dataclasses import dataclass, field

from kvbench.methods import Eviction, Needs, Scoring


@dataclass
class WindowTimesKey(Scoring):
    window: int = 8

    @property
    def needs(self):
        return Needs(window=self.window)

    def protected(self, budget):
        return self.window

    def votes(self, layer):
        attention = layer.window_votes(self.window)
        keys = layer.keys.float()
        far = (keys - keys.mean(dim=1, keepdim=True)).norm(dim=-1)
        return attention * far.repeat_interleave(layer.num_attention_heads // len(far), dim=0)


@dataclass
class FarVotes(Eviction):
    scoring: Scoring = field(default_factory=WindowTimesKey)
