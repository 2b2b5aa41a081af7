"""Quest (Tang et al. 2024): every token stays, and each query reads the pages that may matter to it."""

from typing import Literal

from kvbench.cache.base import LayerCache
from kvbench.cache.dense import DenseLayer
from kvbench.cache.paged import PagedLayer
from kvbench.methods.base.method import Method
from kvbench.methods.facts import values
from kvbench.methods.selection import Selection
from kvbench.methods.storage.base import KeptLayer
from kvbench.prefill import LayerState
from kvbench.utils.checked import NonNegative, Positive, checked


@checked
class Quest(Method):
    """Selection without eviction (arXiv 2406.10774): the budget is the tokens that a query head reads at each step.

    The cache is FullKV's plus the bounds of each page's keys: r_bytes is 1 + 1 / page in the layers that read pages,
    1 in the first ones. r is 1, because every token stays: a budget saves only bytes that attention reads, r_read.

    page          consecutive tokens that are read together.
    dense_layers  first layers, which read everything.
    min_pages     pages that are always read, at any budget.
    last_page     always: the page of the newest token is read, within the budget (the released kernels). competes:
                  it competes with the other pages, so a new token may not see itself (the released code of the tables).

    The prompt is read with full attention, and a budget of the prompt's length or more is FullKV. The released scripts
    for LongBench and pass keys feed the end of the prompt token by token (the last 100 characters at most, and 400), so
    that the question itself reads pages; question=hidden does so with the whole question.
    """

    short = values(page=8)
    overspends = "everything stays: the budget is what is read"

    page: Positive = 16
    dense_layers: NonNegative = 2
    min_pages: Positive = 3
    last_page: Literal["always", "competes"] = "always"

    divisible = False  # a layer holds everything, whatever its budget

    @property
    def minimum_budget(self) -> int:
        return self.min_pages * self.page

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        return 1.0

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        kept = Selection.everything(layer).kept(layer)
        if index < self.dense_layers or budget >= layer.n:
            return DenseLayer(layer.keys, layer.values, layer.n, kept)
        pages = max(self.min_pages, budget // self.page)
        last = self.last_page == "always"
        group = layer.num_attention_heads // layer.num_key_value_heads
        return PagedLayer(layer.keys, layer.values, self.page, pages, group, last, layer.n, kept)
