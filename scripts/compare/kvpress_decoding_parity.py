"""Does compression while decoding keep the tokens that kvpress's DecodingPress keeps, on the same keys?

    .venv/bin/python -m scripts.compare.kvpress_parity prompts FOLDER
    kvpress-env/bin/python -m scripts.compare.kvpress_decoding_parity press FOLDER
    .venv/bin/python -m scripts.compare.kvpress_decoding_parity compare FOLDER

scripts/README.md has the environments and the result. `press` reads the start of each prompt at once and its last
tokens one by one with kvpress's hooks, and saves what each reduction saw and left; `compare` decodes the same keys with
kvbench.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from scripts.compare.kvpress_parity import tally
from scripts.compare.presses.cases import build_model
from scripts.frame import script_parser

DECODED, EVERY = 48, 16
TARGETS = (64, 270)
PRESSES = {"KNorm": ("KnormPress", {}), "KeyDiff": ("KeyDiffPress", {}), "StreamingLLM": ("StreamingLLMPress", {})}
DTYPES = ("float32", "bfloat16")


def cases(folder: Path) -> list[dict]:
    """The shorter prompts of kvpress_parity's."""
    every = json.loads((folder / "cases.json").read_text())
    shortest = min(len(case["ids"]) for case in every)
    return [case for case in every if len(case["ids"]) == shortest]


@torch.inference_mode()
def press(folder: Path) -> None:
    """With kvpress: per reduction the keys before it, the slots kept, and the scores."""
    import kvpress
    from transformers import DynamicCache

    for number, case in enumerate(cases(folder)):
        tensors: dict[str, torch.Tensor] = {}
        for dtype in DTYPES:
            model = build_model(case).to(getattr(torch, dtype))
            for name, (kind, options) in PRESSES.items():
                for target in TARGETS:
                    base = recording(getattr(kvpress, kind)(**options), tensors, f"{dtype}/{name}/{target}")
                    cache, ids = DynamicCache(config=model.config), torch.tensor([case["ids"]])
                    with kvpress.DecodingPress(base, compression_interval=EVERY, target_size=target)(model):
                        for base.step, places in enumerate(blocks(ids.shape[1])):
                            at = {"position_ids": places[None], "cache_position": places}  # of the text, not the cache
                            model(input_ids=ids[:, places], past_key_values=cache, use_cache=True, **at)
        save_file(tensors, folder / f"decoding-{number}.safetensors")
        print(f"{case['model']}: {len(tensors)} tensors", flush=True)


def blocks(n: int) -> list[torch.Tensor]:
    """The positions of each pass: the prompt's, and one for every decoded token."""
    return [torch.arange(n - DECODED), *torch.arange(n - DECODED, n).split(1)]


def recording(base, tensors: dict, prefix: str):
    """The press, which also saves what its `compress` is given and keeps."""
    score, compress = base.score, base.compress
    base.step = 0

    def scored(module, hidden, keys, *more):
        base.scores = score(module, hidden, keys, *more)
        return base.scores

    def compressed(module, hidden, keys, values, attentions, kwargs):
        base.scores = None  # of a cache that is short enough there are none
        slots = torch.arange(keys.shape[2]).double()[None, None, :, None].expand(*keys.shape).contiguous()
        _, kept = compress(module, hidden, keys, slots, attentions, kwargs)
        kept = kept[..., :1].long()
        at = f"{prefix}/{base.step}/{module.layer_idx}"
        tensors[f"{at}/keys"], tensors[f"{at}/kept"] = keys[0].clone(), kept[0, :, :, 0].to(torch.int32).clone()
        if base.scores is not None:
            tensors[f"{at}/scores"] = base.scores[0].float().clone()
        places = kept.expand(-1, -1, -1, keys.shape[3])
        return keys.gather(2, places), values.gather(2, places)

    base.score, base.compress = scored, compressed
    return base


@torch.inference_mode()
def compare(folder: Path) -> None:
    """With kvbench: a cache that starts from what kvpress had stored, decodes the same tokens, and is reduced."""
    counts: dict[tuple, dict] = {}
    for number, case in enumerate(cases(folder)):
        tensors = load_file(folder / f"decoding-{number}.safetensors")
        for place in (name.removesuffix("/keys") for name in tensors if name.endswith("/keys")):
            dtype, name, target, step, _ = place.split("/")
            row = counts.setdefault(
                (case["model"], name, dtype), dict.fromkeys(("sets", "equal", "sizes"), 0) | {"gap": 0}
            )
            assert int(step) % EVERY == 0, "kvpress reduced at another pass"
            keys, theirs = tensors[f"{place}/keys"], tensors[f"{place}/kept"].sort(dim=-1).values
            ours = kept_slots(name, keys, int(target))
            tally(row, ours, theirs, tensors.get(f"{place}/scores", torch.zeros(len(keys), keys.shape[1])))
    print("| model | method | dtype | sets of reduction, layer and head | equal | equal sizes | largest gap |")
    print("|---|---|---|---|---|---|---|")
    for (model, name, dtype), row in counts.items():
        print(f"| {model} | {name} | {dtype} | {row['sets']} | {row['equal']} | {row['sizes']} | {row['gap']:.1e} |")


def kept_slots(name: str, keys: torch.Tensor, target: int) -> torch.Tensor:
    """The slots [heads, k] of keys [heads, len, head_dim] that a cache keeps which decoded the last EVERY of them."""
    from kvbench.methods import DecodeCompression, Eviction, KeyDiff, KNorm, StreamingLLM
    from kvbench.prefill import LayerState
    from scripts.compare.parity.stand_ins import digits, undigits

    when = DecodeCompression(every=EVERY, prompt="whole")
    scorings = {"KNorm": KNorm, "KeyDiff": KeyDiff}
    made = Eviction(scoring=scorings[name](), decode_compression=when) if name in scorings else None
    method = made or StreamingLLM(decode_compression=when)
    slots = digits(torch.arange(keys.shape[1]), keys.shape[2], keys.dtype).expand(keys.shape)
    n = keys.shape[1] - EVERY
    cache = method.compress_layer(LayerState(keys[:, :n], slots[:, :n], 1.0, len(keys)), 0, 1, target)
    for slot in range(n, n + EVERY):
        new = slice(slot, slot + 1)
        cache.update(keys[None, :, new], slots[None, :, new])
        cache.attend(keys[None, :, new], 1.0)
    return undigits(cache.v.view[0]).to(torch.int32).sort(dim=-1).values


def main() -> None:
    steps = {"press": press, "compare": compare}
    parser = script_parser(__doc__)
    parser.add_argument("step", choices=steps)
    parser.add_argument("folder", type=Path, help="where `kvpress_parity.py prompts` left its file")
    arguments = parser.parse_args()
    steps[arguments.step](arguments.folder)


if __name__ == "__main__":
    main()
