"""Times of one length: prefill, compression, decoding of one sequence and of a batch, beside model.generate."""

import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from transformers import PreTrainedModel

from kvbench.cache.base import storage_bytes
from kvbench.evaluation.decode import batched, decode_greedily, generate
from kvbench.evaluation.prefill_passes import stored
from kvbench.evaluation.steps import capture_of
from kvbench.methods import H2O, Eviction, FullKV, Kivi, Method, Pyramid, StreamingLLM, WindowAttention
from kvbench.methods.spindle import SpindleKV
from kvbench.models.attention_interface import ATTENTION
from kvbench.ops.sdpa import without_cudnn
from kvbench.prefill import FullPrefill, Needs, PrefillState, in_chunks
from kvbench.utils.device import finish, free_bytes
from scripts.benchmarks.gpu.models import token_ids
from scripts.benchmarks.gpu.stages import Clock, attempted

RATIO = 0.2
BATCH = 12
WARM = 34  # tokens: one more than twice as many as a kernel's code could depend on
PROFILED = 8  # tokens whose kernels' time is added up
SETTINGS: dict[str, Method] = {
    "full": FullKV(),
    "streaming_llm": StreamingLLM(),
    "snapkv": Eviction(),
    "pyramidkv": Eviction(Pyramid(), WindowAttention(window=8)),
    "kivi": FullKV(storage=Kivi()),
    "spindle": SpindleKV(control=None),
    "h2o": H2O(),
}


class Length:
    """The measurements at one prompt length."""

    def __init__(self, model: PreTrainedModel, n: int, chunk: int | None, new_tokens: int, clock: Clock):
        self.model, self.n, self.chunk, self.steps, self.clock = model, n, chunk, new_tokens, clock
        self.ids = token_ids(n, model.config.vocab_size)

    def table(self) -> dict:
        found: dict = {"n": self.n, "chunk": self.chunk}
        needs = Needs(window=32)
        self.prefill(needs, min(self.n, 256))  # warm-up, of the kernels too
        seconds, state = self.timed(lambda: self.prefill(needs))
        found["prefill_seconds"] = seconds
        found |= self.of_state(state)
        del state  # 17 GB of keys and values at 128k tokens
        for _ in self.clock.each(["column sums"]):
            found["column_sums"] = attempted(self.column_sums)
        return found

    def of_state(self, state: PrefillState) -> dict:
        """Every setting from one prefill, the batch, and generate."""
        found: dict = {"settings": {}}
        for name in self.clock.each([name for name in SETTINGS if name != "h2o"]):
            found["settings"][name] = attempted(lambda name=name: self.setting(SETTINGS[name], state))
        parts: list[tuple[str, Callable[[], dict]]] = [
            ("batch", lambda: self.batch(state)),
            ("generate", self.generate),
        ]
        for name, work in self.clock.each(parts, name=lambda part: part[0]):
            found[name] = attempted(work)
        return found

    def prefill(self, needs: Needs, n: int | None = None) -> PrefillState:
        return in_chunks(FullPrefill(), self.chunk).run(self.model, self.ids[:n], needs)

    def timed(self, work: Callable[[], object]) -> tuple[float, object]:
        finish(self.model.device)
        started = time.perf_counter()
        out = work()
        finish(self.model.device)
        return time.perf_counter() - started, out

    @torch.inference_mode()
    def setting(self, method: Method, state: PrefillState) -> dict:
        """Compression, and tokens per second of one sequence; the first compression and tokens warm up."""
        budget = max(int(RATIO * self.n), method.minimum_budget)
        caches = method.compress(state, budget)
        generate(self.model, caches, state.logits, min(WARM, self.steps), frozenset())
        del caches
        compress, caches = self.timed(lambda: method.compress(state, budget))
        counted = storage_bytes(stored(caches))
        decode, _ = self.timed(lambda: generate(self.model, caches, state.logits, self.steps, frozenset()))
        caches, capture = method.compress(state, budget), capture_of("auto", self.model)
        graph, graphed = self.timed(
            lambda: generate(self.model, caches, state.logits, self.steps, frozenset(), capture=capture)
        )
        caches = method.compress(state, budget)
        kernels = self.kernel_seconds(lambda: generate(self.model, caches, state.logits, PROFILED, frozenset()))
        room = free_bytes(str(self.model.device))
        return {
            "compress_seconds": compress,
            "decode_tokens_per_s": (self.steps - 1) / decode,
            "graph_tokens_per_s": (self.steps - 1) / graph if graphed.repeated else None,
            "wall_ms_per_token": 1e3 * decode / (self.steps - 1),
            "kernel_ms_per_token": None if kernels is None else 1e3 * kernels / (PROFILED - 1),
            "cache_bytes": counted,
            "largest_batch_counted": int(room // counted),
        }

    def kernel_seconds(self, work: Callable[[], object]) -> float | None:
        """Seconds that the GPU's kernels take in all while `work` runs; None on a CPU."""
        if self.model.device.type != "cuda":
            return None
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            work()
            finish(self.model.device)
        return 1e-6 * sum(event.self_device_time_total for event in profiled.key_averages())

    @torch.inference_mode()
    def batch(self, state: PrefillState) -> dict:
        """Twelve settings of the prompt as one batch, over one by one. No column sums are needed."""
        pool = [SETTINGS[name] for name in ("streaming_llm", "snapkv", "pyramidkv", "spindle")]
        chosen = [(method, int(ratio * self.n)) for method in pool for ratio in (0.1, 0.2, 0.4)][:BATCH]
        logits = state.logits.expand(BATCH, -1)

        def caches() -> list:
            return [method.compress(state, max(budget, method.minimum_budget)) for method, budget in chosen]

        decode_greedily(self.model, batched(caches()), logits, min(WARM, self.steps), frozenset())
        ready = caches()
        together, _ = self.timed(lambda: decode_greedily(self.model, batched(ready), logits, self.steps, frozenset()))
        ready = caches()
        alone, _ = self.timed(lambda: [generate(self.model, x, state.logits, self.steps, frozenset()) for x in ready])
        return {"settings": BATCH, "seconds": together, "one_by_one_seconds": alone, "times_faster": alone / together}

    @torch.inference_mode()
    def generate(self) -> dict:
        """transformers' own generate: tokens per second of what its second half of the tokens takes.

        Without cuDNN's attention, as kvbench decodes: it plans anew for every length, for longer than a token takes.
        """
        self.model.set_attn_implementation("sdpa")
        ids: Tensor = self.ids[None].to(self.model.device)

        def run(count: int) -> None:
            options = {"max_new_tokens": count, "min_new_tokens": count, "do_sample": False, "pad_token_id": 0}
            self.model.generate(ids, attention_mask=torch.ones_like(ids), **options)

        try:
            with without_cudnn():
                run(2)
                short, _ = self.timed(lambda: run(2))
                whole, _ = self.timed(lambda: run(self.steps + 2))
        finally:
            self.model.set_attn_implementation(ATTENTION)
        return {"first_two_tokens_seconds": short, "decode_tokens_per_s": self.steps / max(whole - short, 1e-9)}

    @torch.inference_mode()
    def column_sums(self) -> dict:
        """The prefill with H2O's sums over the prefill without, and H2O's compression."""
        plain, _ = self.timed(lambda: self.prefill(Needs()))
        sums, state = self.timed(lambda: self.prefill(Needs(column_sums=True)))
        return {"prefill_seconds": sums, "over_plain": sums / plain, "h2o": self.setting(SETTINGS["h2o"], state)}
