"""What kvpress keeps, and the tensors it had, in files: runs where kvpress is installed and kvbench is not."""

import json
from pathlib import Path
from types import SimpleNamespace

import torch
from safetensors.torch import save_file

from scripts.compare.presses.cases import CHANNELS, PRESSES, REMOVED, always_kept, build_model, grid, versions


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


def press_allocations() -> list[list[int]]:
    """Tokens per layer by kvpress's own rule at every point of the grid."""
    from kvpress import PyramidKVPress

    rows = []
    for n, layers, removed, window, beta in grid():
        method = PyramidKVPress(compression_ratio=removed, window_size=window, beta=beta)
        config = SimpleNamespace(num_hidden_layers=layers)
        rows.append([method.get_layer_budget(SimpleNamespace(config=config, layer_idx=i), n) for i in range(layers)])
    return rows
