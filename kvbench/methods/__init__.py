"""Methods: functions from a prefill state to layer caches. YAML files in conf/method name these classes.

A new method needs no other import: this package also has its base classes, the state that it reads and the caches that
it returns. `X as X` marks a name as public. The classes of all files below can be imported from here by name, too.
"""

from typing import Any

from kvbench.cache.base import LayerCache as LayerCache
from kvbench.cache.dense import DenseLayer as DenseLayer
from kvbench.cache.reserve_ratio import Kept as Kept
from kvbench.methods.allocation.base import Allocation as Allocation
from kvbench.methods.allocation.weighted import WeightedAllocation as WeightedAllocation
from kvbench.methods.base.method import Method as Method
from kvbench.methods.eviction.decode_compression import DecodeCompression as DecodeCompression
from kvbench.methods.eviction.eviction import Eviction as Eviction
from kvbench.methods.eviction.interval_layer import interval_layer as interval_layer
from kvbench.methods.facts import values as values
from kvbench.methods.full import FullKV as FullKV
from kvbench.methods.heads.base import HeadBudgets as HeadBudgets
from kvbench.methods.scoring.base import Scoring as Scoring
from kvbench.methods.selection import Selection as Selection
from kvbench.methods.selection import top_indices as top_indices
from kvbench.methods.selection import with_window as with_window
from kvbench.methods.storage.base import Storage as Storage
from kvbench.methods.storage.dense import Dense as Dense
from kvbench.ops.attention import dense_attention as dense_attention
from kvbench.prefill import LayerState as LayerState
from kvbench.prefill import Needs as Needs
from kvbench.prefill import PrefillPlan as PrefillPlan
from kvbench.prefill import PrefillState as PrefillState
from kvbench.prefill.block_sums import Blocks as Blocks
from kvbench.prefill.reconstruction import Reconstruction as Reconstruction
from kvbench.utils.classes_by_name import class_below, places


def __getattr__(name: str) -> Any:
    return class_below(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *places(__name__)})
