"""What methods cost: `benchmark=speed` measures each setting by itself, in turns, and tells medians and bytes."""

from kvbench.speed.report import present
from kvbench.speed.run import check, evaluate

__all__ = ["check", "evaluate", "present"]
