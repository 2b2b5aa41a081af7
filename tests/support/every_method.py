"""Every file of conf/method as a setting that fits prompts of a test; its passes and caches."""

import copy
from functools import cache, lru_cache

import torch
from torch import Tensor

from kvbench.cache.reserve_ratio import ReserveRatio
from kvbench.evaluation import cache_checks
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.evaluation.settings import Setting, build_settings
from kvbench.ops.rope import Rope
from kvbench.prefill import FullPrefill, Needs, PrefillPlan, PrefillState, Reconstruction
from kvbench.prefill.pruned import PrunedPrefill
from tests.support.config import NAMES, SCORES, method_configs
from tests.support.tiny import BLOCKS, REREAD, prompt, random_state, tiny_model

LAYERS, HEADS, HEAD_DIM = 4, 6, 32  # KIVI's groups are of 32 channels


N, STEPS = 120, 12


# Published windows are longer than a test's prompt: the same methods with windows that bind, and some layers lazy.
SMALL = {
    "ChunkedEviction": {"chunk": 16},
    "Codebook": {"window": 8},
    "Compactor": {"block": 16},
    "ColumnSums": {"recent": 8},
    "DecodeCompression": {"every": 4},
    "GEAR": {"group": 8, "buffer": 8},
    "DuoAttention": {"sinks": 4, "recent": 8},
    "Finch": {"window": 8, "chunk": 16},
    "Kivi": {"residual": 32},
    "LAVa": {"window": 8},
    "KVTC": {"sinks": 2, "recent": 8},
    "LagKV": {"lag": 16},
    "MeanVariance": {"window": 8},
    "Matched": {"references": 28, "recent": 8},
    "MatchingPursuit": {"references": 28, "window": 8},
    "NACL": {"window": 8},
    "NonCausalAttention": {"block": 16},
    "OmniKV": {"filters": [1], "of": 4},
    "OnlyLazyLayers": {"window": 24, "delta": 0.123},
    "Preference": {"window": 8},
    "PyramidInfer": {"min_ctx": 8, "exceed_length": 4},
    "Quest": {"page": 8},
    "RandomLayers": {"window": 24},
    "ReferenceAttention": {"references": 28, "window": 8},
    "RocketKV": {"window": 8, "kernel": 5},
    "ScoreThreshold": {"window": 8, "threshold": 0.08},
    "SimLayerKV": {"window": 24, "delta": 0.123},
    "SpindleKV": {"window": 8},
    "StreamingLLM": {"recent": 8},
    "ThinK": {"recent": 8},
    "TriAttention": {"observed": 8},
    "TurboQuant": {"raw_layers": 1},
    "WindowAttention": {"window": 8},
}


# A budget that does not bind makes all others FullKV.
NEVER_FULL = {
    "duo_paper": "its share of streaming heads is fixed",
    **dict.fromkeys(["fp8_unit", "fp8_head", "fp8_token", "snapkv_fp8"], "quantised"),
    **{f"turboquant_{bits}": "quantised" for bits in (2, 3, 4, "vllm")},
    **{f"ggml_{name}": "quantised" for name in ("q8_0", "q8_0_q4_0", "q5_1", "q4_0", "q4_0_rotated", "iq4_nl")},
    **dict.fromkeys(["kvquant_3", "kvquant_4", "snapkv_kvquant"], "quantised"),
    **dict.fromkeys(["gear_2", "gear_4", "snapkv_gear", "kvtc_3", "kvtc_5", "snapkv_kvtc"], "quantised"),
    **dict.fromkeys(["palu", "snapkv_palu", "xkv"], "in a low rank"),
    **dict.fromkeys(["nvfp4", "mxfp4", "mxfp6", "mxfp8", "snapkv_nvfp4"], "quantised"),
    "kivi": "quantised",
    "kivi_k4v2": "quantised",
    "kivi_longbench_2bit": "quantised",
    "kivi_longbench_4bit": "quantised",
    "minicache": "merged",
    "minicache_kivi4": "merged and quantised",
    "minicache_simlayerkv": "merged",
    "minicache_simlayerkv_q4": "merged and quantised",
    "only_lazy_layers": "not lazy by threshold",
    "pyramidinfer_official": "its decay is fixed",
    "pyramidkv_kivi4": "quantised",
    "score_threshold": "its threshold is fixed",
    "lagkv_paper": "its share is fixed",
    "simlayerkv": "lazy by threshold",
    "simlayerkv_decode": "lazy by threshold",
    "simlayerkv_decode_kivi4": "lazy by threshold and quantised",
    "simlayerkv_kivi4": "lazy by threshold and quantised",
    "simlayerkv_paper": "lazy by threshold",
    "simlayerkv_paper_q4": "lazy by threshold and quantised",
    "simlayerkv_snapkv": "lazy by threshold",
    "snapkv_codebook": "coded",
    "snapkv_kivi4": "quantised",
    "think_snapkv": "without some channels",
    "spindle": "coded",
    "spindlekv_paper": "coded",
}


# All others keep at most the budget, in the mean over layers.
OVERSPENDS = {
    **dict.fromkeys(["quest", "quest_paper", "omnikv"], "everything stays: the budget is what is read"),
    "rocketkv": "the budget is what is read: more is kept",
    "ada_pyramidkv_paper": "the released allocation rounds its step down",
    "adakv_paper": "the released code rounds the budget of each head",
    "cake_paper": "prompts of up to budget + window tokens stay whole",
    "kvzip_head_paper": "the ratio is of the context",
    "lava_paper": "the released floor of a head is a share of the whole budget",
    "knorm_decode_512": "the prompt stays whole until the first reduction",
    "headkv_r2_paper": "the released code rounds the budget of each head",
    "knorm_paper": "two layers stay whole",
    "kvzip_paper": "the ratio is of the context",
    "rkv_paper": "the prompt stays whole until the first reduction",
    "pyramidkv_paper": "the released allocation rounds its step down",
    "pyramidkv_paper_2024_06": "the released allocation rounds its step down",
    "pyramidkv_paper_kv_heads": "the released allocation rounds its step down",
    "simlayerkv_snapkv": "lazy layers keep theirs whatever the budget",
    "spindle": "the ratio is met after merging, by a larger budget for eviction",
    "spindlekv_paper": "the query heads of a group keep tokens of their own",
}


@cache
def configs(scores: str = SCORES) -> dict[str, dict]:
    return method_configs(*NAMES, scores=scores)


def small(config):
    """A method's configuration with the values of SMALL wherever a part gives one."""
    if not isinstance(config, dict):
        return config
    changed = SMALL.get(config.get("_target_", "").rpartition(".")[2], {})
    config = {key: small(value) for key, value in config.items()}
    return config | {key: value for key, value in changed.items() if config.get(key) is not None}


def setting(
    name: str, ratio: float | None = 0.5, budget: int | None = None, shipped: bool = False, scores: str = SCORES
) -> Setting:
    """`scores`: the calibration file, of models with `LAYERS` layers of `HEADS` query heads."""
    config = copy.deepcopy(configs(scores)[name])
    (one,) = build_settings({name: config if shipped else small(config)}, None if budget else ratio, budget)
    return one


@cache
def model():
    return tiny_model(layout="gqa", num_layers=LAYERS, head_dim=HEAD_DIM)


@cache
def shared_pass(n: int, plan: PrefillPlan) -> SharedPass:
    again = frozenset({Reconstruction(), REREAD})
    needs = Needs(
        32,
        True,
        True,
        frozenset({8, 32}),
        frozenset({4}),
        True,
        again if plan == FullPrefill() else frozenset(),
        block_sums=BLOCKS,
    )
    return SharedPass(model(), prompt(n), plan, needs)


def pass_of(one: Setting, n: int) -> tuple[SharedPass, int]:
    """The pass that a setting needs, and its budget."""
    budget = one.budget_at(n, LAYERS)
    return shared_pass(n, one.method.plan(n, LAYERS, budget)), budget


# methods whose pruning happens in a pass of their own: layers made up by `state` never went through it
PRUNED = [name for name in NAMES if isinstance(setting(name).method.plan(N, LAYERS, N), PrunedPrefill)]


@cache
def rope() -> Rope:
    return Rope.of(tiny_model(head_dim=HEAD_DIM))


@lru_cache(maxsize=128)
def state(n: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> PrefillState:
    """Random layers with heads for KIVI, and all that any method reads; methods leave a state as it is."""
    made = random_state(LAYERS, n=n, head_dim=HEAD_DIM, window=32, dtype=dtype, rope=rope())
    if scale != 1:
        for layer in made.layers:
            layer.keys, layer.values = layer.keys * scale, layer.values * scale
    return made


def steps(caches, count: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> list[Tensor]:
    """What `count` further tokens get for an answer, layer after layer."""
    generator = torch.Generator().manual_seed(7)
    out = []
    for _ in range(count):
        for layer in caches:
            query, key, value = (scale * torch.randn(1, heads, 1, HEAD_DIM, generator=generator) for heads in (6, 2, 2))
            layer.update(key.to(dtype), value.to(dtype))
            out.append(layer.attend(query.to(dtype), HEAD_DIM**-0.5))
    return out


# Tokens that stay in every head of a prompt without a chat template, whatever the budget.
ALWAYS = {"kvzip_head": 4}


# What decodes a prompt, in tokens of a raw cache: of a short prompt it takes more than it saves.
TABLES = {
    **dict.fromkeys(["kvquant_3", "kvquant_4", "snapkv_kvquant"], 2),
    **dict.fromkeys(["gear_2", "gear_4", "snapkv_gear"], 6),
    **dict.fromkeys(["kvtc_3", "kvtc_5", "snapkv_kvtc"], 2),
    **dict.fromkeys(["palu", "snapkv_palu", "xkv"], 32),
}


def check_kept(one: Setting, caches, n: int, budget: int, full_bytes: int) -> ReserveRatio:
    """Nominal and realised sizes of a prompt of n tokens, and the ratios."""
    # MiniCache counts a direction for unmerged tokens too, as the paper does
    # nothing to merge leaves merging its overhead: magnitudes, references
    most = 1.5 if "minicache" in one.name else 1.05 if NEVER_FULL.get(one.name) == "coded" else 1 + 1e-9
    most += TABLES.get(one.name, 0) / n
    # r1 counts a token that any query head of a group keeps
    ratio = cache_checks.check_kept(caches, n, full_bytes, most, heads=3 if "spindle" in one.name else 1)
    if one.method.takes_budget and one.name not in OVERSPENDS:
        cache_checks.check_budget(caches, n, max(budget, min(n, ALWAYS.get(one.name, 0))))
    return ratio
