"""Times of one length: prefill, compression, decoding of one sequence and of a batch, beside model.generate."""

import copy
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from transformers import PreTrainedModel

from kvbench.cache.base import LayerCache, storage_bytes
from kvbench.cache.rows import RowsLayer
from kvbench.evaluation.decode import batched, decode, generate
from kvbench.evaluation.generation import Generation
from kvbench.evaluation.prefill_passes import stored
from kvbench.evaluation.recorded_steps import recording_of
from kvbench.methods import H2O, Eviction, FullKV, Kivi, Method, Pyramid, StreamingLLM, WindowAttention
from kvbench.methods.spindlekv.method import SpindleKV
from kvbench.prefill import FullPrefill, Needs, PrefillState, in_chunks
from kvbench.utils.device import finish, free_bytes
from scripts.benchmarks.gpu.compiled import FUSED
from scripts.benchmarks.gpu.generated import generated
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

IN_BATCHES = ("streaming_llm", "snapkv", "pyramidkv", "spindle")


class Length:
    """The measurements at one prompt length."""

    def __init__(
        self,
        model: PreTrainedModel,
        n: int,
        chunk: int | None,
        new_tokens: int,
        clock: Clock,
        tell: Callable[[dict], None] = lambda results: None,
    ):
        """tell: is called with all results so far, whenever there is a new result."""
        self.model, self.n, self.chunk, self.steps, self.clock, self.tell = model, n, chunk, new_tokens, clock, tell
        self.found: dict = {"n": n, "chunk": chunk}
        self.ids = token_ids(n, model.config.vocab_size)

    def table(self) -> dict:
        needs = Needs(window=32)
        self.prefill(needs, min(self.n, 256))  # warm-up, of the kernels too
        seconds, state = self.timed(lambda: self.prefill(needs))
        self.found["prefill_seconds"] = seconds
        self.of_state(state)
        del state  # 17 GB of keys and values at 128k tokens
        for _ in self.clock.each(["column sums"]):
            self.found["column_sums"] = attempted(self.column_sums)
        if "fused" in self.engines():  # last: it compiles for longer than all others measure
            state = self.prefill(needs)
            self.found["fused"] = {}
            for name in self.clock.each([*FUSED], name=lambda name: f"fused {name}"):
                self.found["fused"][name] = attempted(lambda name=name: self.fused(SETTINGS[name], state))
        return self.found

    def of_state(self, state: PrefillState) -> None:
        """Every setting from one prefill, the batch, and generate."""
        settings = self.found["settings"] = {}
        for name in self.clock.each([name for name in SETTINGS if name != "h2o"]):
            settings[name] = attempted(lambda name=name: self.setting(SETTINGS[name], state))
            self.tell(self.found)
        parts: list[tuple[str, Callable[[], dict]]] = [
            ("generate", self.generate),
            ("batch", lambda: self.batch(state)),
        ]
        for name, work in self.clock.each(parts, name=lambda part: part[0]):
            self.found[name] = attempted(work)
            self.tell(self.found)

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
        repeats = all(isinstance(cache.for_batch(), RowsLayer) for cache in caches)
        rates = self.rates([caches], state.logits[None])
        kernels = self.kernel_seconds(lambda: generate(self.model, caches, state.logits, PROFILED, frozenset()))
        room = free_bytes(str(self.model.device))
        return {
            "compress_seconds": compress,
            "decode_tokens_per_s": rates["eager"],
            **{f"{engine}_tokens_per_s": rate for engine, rate in rates.items() if engine != "eager"},
            "expected": ["graph"] if repeats and "graph" in rates else [],
            "wall_ms_per_token": 1e3 / rates["eager"],
            "kernel_ms_per_token": None if kernels is None else 1e3 * kernels / (PROFILED - 1),
            "cache_bytes": counted,
            "largest_batch_counted": int(room // counted),
        }

    @torch.inference_mode()
    def fused(self, method: Method, state: PrefillState) -> dict:
        """Tokens per second of one sequence, by compiled layers."""
        budget = max(int(RATIO * self.n), method.minimum_budget)
        rate = self.rate([method.compress(state, budget)], state.logits[None], "fused")
        return {"fused_tokens_per_s": rate, "expected": ["fused"]}

    def engines(self) -> list[str]:
        """Those of `decode.engine` that this machine has."""
        return ["eager"] if recording_of("auto", self.model) is None else ["eager", "graph", "fused"]

    def rates(self, rows: list[list[LayerCache]], logits: Tensor) -> dict[str, float | None]:
        """`rate` by each engine but `fused`, which compiles first."""
        return {engine: self.rate(rows, logits, engine) for engine in self.engines() if engine != "fused"}

    def rate(self, rows: list[list[LayerCache]], logits: Tensor, engine: str) -> float | None:
        """Tokens per second of each row of a batch of copies of these caches, by the time that twice as many take
        longer: without the first steps, a recording and a compilation. None where no step was of this engine."""
        recording = recording_of(engine, self.model)

        def timed(tokens: int) -> tuple[float, list[Generation]]:
            cache = batched(copy.deepcopy(rows))
            seconds, answers = self.timed(
                lambda: decode(self.model, cache, logits, tokens, frozenset(), recording=recording)
            )
            return seconds, answers

        if engine == "fused":
            timed(min(WARM, self.steps))  # compiles
        short, _ = timed(self.steps)
        long, answers = timed(2 * self.steps)
        if engine != "eager" and {answer.engine for answer in answers} != {engine}:
            return None
        return self.steps / max(long - short, 1e-9)

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
        """Twelve settings of the prompt as one batch, or as many as fit, over one by one. They need no column sums.

        One by one: at the speed of each method alone, as `setting` measured it, at whatever ratio."""
        chosen = self.that_fit(state)
        logits = state.logits.expand(len(chosen), -1)
        rows = [method.compress(state, max(budget, method.minimum_budget)) for method, budget in chosen]
        rates = self.rates(rows, logits)
        alone = [row["decode_tokens_per_s"] for name, row in self.found["settings"].items() if name in IN_BATCHES]
        one_by_one = len(alone) / sum(1 / rate for rate in alone) if alone else None
        return {
            "settings": len(chosen),
            "one_by_one_tokens_per_s": one_by_one,
            "times_faster": rates["eager"] * len(chosen) / one_by_one if one_by_one and rates["eager"] else None,
            **{f"{engine}_tokens_per_s": rate for engine, rate in rates.items()},
            "expected": ["graph"] if "graph" in rates else [],
        }

    def that_fit(self, state: PrefillState) -> list[tuple[Method, int]]:
        """Methods with their budgets, from the smallest on, whose caches take no more than a third of the free memory:
        they are held three times while their copies are packed."""
        pool = [SETTINGS[name] for name in IN_BATCHES]
        every = [(method, ratio) for ratio in (0.1, 0.2, 0.4) for method in pool][:BATCH]
        room, chosen = free_bytes(str(self.model.device)) / 3, []
        for method, ratio in every:
            room -= ratio * state.nbytes
            if room < 0 and chosen:
                break
            chosen.append((method, int(ratio * self.n)))
        return chosen

    @torch.inference_mode()
    def generate(self) -> dict:
        """transformers' own generate: tokens per second of what its second half of the tokens takes."""
        generated(self.model, self.ids, 2)
        short, _ = self.timed(lambda: generated(self.model, self.ids, 2))
        whole, _ = self.timed(lambda: generated(self.model, self.ids, self.steps + 2))
        return {"first_two_tokens_seconds": short, "decode_tokens_per_s": self.steps / max(whole - short, 1e-9)}

    @torch.inference_mode()
    def column_sums(self) -> dict:
        """The prefill with H2O's sums over the prefill without, and H2O's compression."""
        plain, _ = self.timed(lambda: self.prefill(Needs()))
        sums, state = self.timed(lambda: self.prefill(Needs(column_sums=True)))
        return {"prefill_seconds": sums, "over_plain": sums / plain, "h2o": self.setting(SETTINGS["h2o"], state)}
