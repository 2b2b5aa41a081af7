"""Scoring: how important each prompt token is. The files of conf/scoring name these classes."""

from kvbench.methods.scoring.base import Scoring
from kvbench.methods.scoring.column_sums import ColumnSums
from kvbench.methods.scoring.window_attention import WindowAttention
from kvbench.methods.scoring.window_average import WindowAverage

__all__ = ["ColumnSums", "Scoring", "WindowAttention", "WindowAverage"]
