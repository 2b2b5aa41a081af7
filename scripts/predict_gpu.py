"""A prediction of the table that `make gpu` would write for an H100, from counts and bytes. Nothing here is measured.

    python scripts/predict_gpu.py            # writes results/gpu/prediction.md and prediction.json

For Llama-3-8B's shape (P parameters, L layers, H query heads, K KV heads, d head_dim, bfloat16) and n prompt tokens:

    decode, one token   t = max(launches · OVERHEAD, bytes / BANDWIDTH) + waits · WAIT
                        launches = L · kernels per layer (results/benchmarks/launches.json) + OUTSIDE
                        bytes    = 2 P + r_bytes · n · 4 L K d
    batch of 12         launches of one step of the batch; bytes = 2 P + sum of the twelve caches
    one by one          12 t of a single setting
    prefill             t = (2 P n + 2 L H d n²) / FLOPS           causal: half of 4 L H d n²
    column sums         a second pass over Q and K: L H d n² / FLOPS more, and its launches
    codebook            N = r n kept tokens of a head, W = N / 32 words of neighbours, rounded up to a power of two.
                        Groups of layers are found at the same time, as many as AT_ONCE allows. For keys and values each
                        similarities: L K N² d · (3 / FLOPS + exact / FLOPS64) + L K N² / 2 · NEAR / INT
                                      N² d: half of 2 N² d, as they are symmetric; 3 products of float16, and the
                                      share of tiles that are computed again in float64
                        votes:        L K N · votes · W · (WORD + bits · BIT) / INT; the late ones, of rounds in which
                                      a set has one program, once more on that program's multiprocessor
                        rounds:       groups · rounds · (4 PICK + 3 N · SCAN): steps that wait for each other
                        launches:     groups · those counted for 32 layers at once (launches.json, `search`)
                        exact, votes (of a vector in all rounds), late votes, rounds and bits of the highest degree are
                        counted on real vectors of the small model (results/benchmarks/codebook_8k.json), the most of
                        any layer. With more vectors than these, rounds, late votes and votes after the first round
                        are assumed to grow as N does.

BANDWIDTH, FLOPS and FLOPS64 (float64) are CARD's: the peaks of the data sheet times the share that is assumed to be
reached. INT is a quarter of the peak of float32, as a multiprocessor has 64 lanes for integers and 128 that multiply
and add floats. NEAR, WORD and BIT are instructions in the kernels' machine code for sm_90, for a similarity, a word of
a vote and each bit of degrees. OVERHEAD is what PyTorch's eager mode takes for one kernel on the host; each wait adds
WAIT. PICK (of a step that a set takes as a whole) and SCAN (of looking at one more vector there) are assumptions. The
search for the ratio covers layers as often as it tries in those counts. r_bytes of SpindleKV is taken as its ratio, and
KIVI's as 4 bits with a scale and a minimum for 32 values. A kernel that cannot keep the memory busy, and everything
that counts cannot know, makes a GPU slower than this.
"""

import argparse
import json
import math
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from kvbench.methods.layer_groups import AT_ONCE
from kvbench.methods.storage.codebook import cover_bytes
from kvbench.models.flops import forward_flops, token_bytes
from kvbench.papers.gpu import H100

ROOT = Path(__file__).parents[1]
COUNTS = ROOT / "results" / "benchmarks" / "launches.json"
COVERS = ROOT / "results" / "benchmarks" / "codebook_8k.json"
OUT = ROOT / "results" / "gpu"
# The shares of its peaks that large kernels reach are an assumption, as are the seconds of a launch and of a pick.
CARD = replace(H100, flops_share=0.55, bandwidth_share=0.75)
OVERHEAD, WAIT = 5e-6, 10e-6
PICK, SCAN = 4e-6, 2e-9
FLOPS64 = 67e12 * CARD.flops_share
INT = 67e12 / 4 * CARD.flops_share
MULTIPROCESSORS = 132
NEAR, WORD, BIT = 20, 30, 5
OUTSIDE = 25  # kernels of a step outside of the layers: embedding, norm, logits, choosing the token
P, L, H, K, D = 8.03e9, 32, 32, 8, 128
LENGTHS = (8192, 32768, 131072)
RATIO = 0.2
# preset -> bytes of its cache over FullKV's, beside the counts of its preset
SETTINGS = {"full": 1.0, "streaming_llm": RATIO, "snapkv": RATIO, "pyramidkv": RATIO, "kivi": 0.375}
SETTINGS |= {"spindlekv_paper": RATIO, "spindle": RATIO}  # without and with the search for the ratio
MEMORY = 80e9


def cache_bytes(n: int, share: float = 1.0) -> float:
    return share * n * token_bytes(L, K, D, itemsize=2)


def step_seconds(kernels: float, bytes_read: float) -> float:
    return max((L * kernels + OUTSIDE) * OVERHEAD, CARD.seconds(0, bytes_read))


def prefill_seconds(n: int) -> float:
    return CARD.seconds(forward_flops(P, [None] * L, H, D, n), 0)


def layers_at_once(kept: int) -> int:
    return max(min(AT_ONCE // (K * cover_bytes(kept, D)), L), 1)


def codebook_seconds(kept: int) -> float:
    """Of all layers' keys and values, once, without launches."""
    rows = json.loads(COVERS.read_text(encoding="utf-8"))["rows"]
    layers = layers_at_once(kept)
    groups = -(-L // layers)
    words = 2 ** math.ceil(math.log2(max(kept / 32, 1)))
    seconds = 0.0
    for side in ("keys", "values"):
        counted = [row for name, row in rows.items() if name.endswith(side)]
        most = {name: max(row[name] for row in counted) for name in counted[0]}
        growth = max(kept / most["vectors"], 1)
        votes, late = 1 + (most["votes"] - 1) * growth, min(most["late_votes"] * growth, 1)
        vote = kept * words * (WORD + most["degree_bits"] * BIT) / INT  # of every vector of a head once
        turns = -(-K * layers // MULTIPROCESSORS)
        seconds += CARD.seconds(3 * L * K * kept**2 * D, 0) + most["exact_tiles"] * L * K * kept**2 * D / FLOPS64
        seconds += L * K * kept**2 / 2 * NEAR / INT
        seconds += L * K * votes * vote + groups * turns * late * vote * MULTIPROCESSORS
        seconds += groups * most["rounds"] * growth * (4 * PICK + 3 * kept * SCAN)
    return seconds


def setting(name: str, n: int, counts: dict) -> dict:
    decode, compress = counts["presets"][name]["decode"], counts["presets"][name]["compress"]
    share = SETTINGS[name]
    seconds = step_seconds(decode["kernels"], 2 * P + cache_bytes(n, share)) + L * decode["waits"] * WAIT
    compress_seconds = L * (compress["kernels"] * OVERHEAD + compress["waits"] * WAIT)
    if name in counts["search"]:
        kept, launched = round(RATIO * n), counts["search"][name]
        groups = -(-L // layers_at_once(kept))
        compress_seconds = groups * launched["kernels"] * OVERHEAD + launched["waits"] * WAIT
        compress_seconds += launched["tries"] * codebook_seconds(kept)
    return {
        "decode_tokens_per_s": 1 / seconds,
        "bound_by": "launches" if seconds > 1.001 * step_seconds(0, 2 * P + cache_bytes(n, share)) else "bytes",
        "waits_per_step": L * decode["waits"],
        "compress_seconds": compress_seconds,
        "cache_bytes": cache_bytes(n, share),
        "largest_batch": int((MEMORY - 2 * P) // cache_bytes(n, share)),
    }


def length(n: int, counts: dict) -> dict:
    prefill = prefill_seconds(n)
    added = counts["prefill"]["n=1024"]["column_sums_add"]["kernels"]
    sums = CARD.seconds(L * H * D * n**2, 0) + L * added * OVERHEAD
    batch = counts["twelve_settings"]
    shares = [1.0, 0.1, 0.2, *[0.1, 0.2, 0.4] * 3]  # of scripts/bench_shared_prefill.py
    together = step_seconds(batch["batch"]["kernels"], 2 * P + sum(cache_bytes(n, share) for share in shares))
    alone = sum(step_seconds(batch["mean_alone"]["kernels"], 2 * P + cache_bytes(n, share)) for share in shares)
    return {
        "n": n,
        "prefill_seconds": prefill,
        "column_sums_over_plain": 1 + sums / prefill,
        "twelve_settings_times_faster": alone / together,
        "settings": {name: setting(name, n, counts) for name in SETTINGS},
    }


def markdown(label: str, tables: list[dict]) -> str:
    lines = [
        "# Prediction for one H100 SXM (80 GB)",
        "",
        "**A prediction, not a measurement**: no GPU was at hand. `python scripts/predict_gpu.py` made it from counted",
        f"kernels (results/benchmarks/launches.json, `{label}`) and bytes; formulas and assumptions are in the script.",
        "`make gpu` measures the same table. Llama-3-8B's shape, bfloat16, ratio 0.2.",
    ]
    for one in tables:
        full = one["settings"]["full"]["decode_tokens_per_s"]
        lines += ["", f"## {one['n']:,} tokens", "", f"- prefill: {one['prefill_seconds']:.2f} s"]
        lines += [f"- prefill with H2O's column sums: {one['column_sums_over_plain']:.2f} × as long"]
        lines += [f"- 12 settings as a batch: {one['twelve_settings_times_faster']:.1f} × one by one", ""]
        lines += [
            "| setting | decode tokens/s | over FullKV | bound by | compress / prefill | cache GB | largest batch |"
        ]
        lines += ["| :-- | --: | --: | :-- | --: | --: | --: |"]
        for name, row in one["settings"].items():
            rate = row["decode_tokens_per_s"]
            share = row["compress_seconds"] / one["prefill_seconds"]
            lines.append(
                f"| {name} | {rate:.0f} | {rate / full:.2f} | {row['bound_by']} | {share:.1%} | "
                f"{row['cache_bytes'] / 1e9:.2f} | {row['largest_batch']} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", default="after", help="which counts of launches.json: before or after")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    known = json.loads(COUNTS.read_text(encoding="utf-8"))
    tables = [length(n, known[options.counts]) for n in LENGTHS]
    options.out.mkdir(parents=True, exist_ok=True)
    made = {"what": "a prediction, not a measurement", "counts": options.counts, "git": known[options.counts]["git"]}
    (options.out / "prediction.json").write_text(
        json.dumps(made | {"lengths": tables}, indent=1) + "\n", encoding="utf-8"
    )
    (options.out / "prediction.md").write_text(markdown(options.counts, tables), encoding="utf-8")
    print(markdown(options.counts, tables))


if __name__ == "__main__":
    main()
