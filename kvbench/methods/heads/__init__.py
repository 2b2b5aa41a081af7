"""Budgets of heads: how many tokens each head of a layer keeps. The files of conf/heads name these classes."""

from kvbench.methods.heads.adakv import AdaKV
from kvbench.methods.heads.base import HeadBudgets
from kvbench.methods.heads.composite import CompositeHeads
from kvbench.methods.heads.equal import EqualHeads
from kvbench.methods.heads.headkv import HeadKV
from kvbench.methods.heads.lava import LAVaHeads
from kvbench.methods.heads.pooled import PooledHeads
from kvbench.methods.heads.whole import WholeHeads

__all__ = ["AdaKV", "CompositeHeads", "EqualHeads", "HeadBudgets", "HeadKV", "LAVaHeads", "PooledHeads", "WholeHeads"]
