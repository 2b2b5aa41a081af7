"""The prediction as Markdown, beside the first one."""

from scripts.results.prediction.decoding import ENGINES

HEAD = """\
# Prediction for one H100 SXM (80 GB)

**A prediction, not a measurement**: no GPU was at hand. `make gpu` measures the same. Llama-3-8B's shape, bfloat16,
`ratio=0.2` where tokens are dropped. `python -m scripts.results.predict_gpu` made it; formulas are in
scripts/results/prediction, and every assumption is [below](#assumptions). A range is the least and the most that they
give.

- **eager**: the host launches each kernel.
- **graph**: one CUDA graph for a step, so the same kernels without the host.
- **fused**: a graph with norm, RoPE + append and SwiGLU fused, so fewer small kernels.
- **limit**: what the memory allows: weights and cache at 3.35 TB/s and nothing else.
- **first**: what this page said before. There the host took 5 µs a kernel and nothing for Python, small kernels took no
  time on the GPU, a token read the whole embedding table, column sums were one pass, and chunks were as fast as a whole
  prompt.
"""


def span(low: float, high: float, digits: int = 0, times: float = 1) -> str:
    shown = [f"{times * value:,.{digits}f}" for value in (low, high)]
    return shown[0] if shown[0] == shown[1] else " to ".join(shown)


def markdown(made: dict, lengths: list[dict], first: dict[int, dict], assumptions: list[str]) -> str:
    lines = HEAD.splitlines()
    for length in lengths:
        lines += ["", f"## {length['n']:,} tokens", "", *prompt_lines(length, first[length["n"]]), ""]
        for many, settings in length["rows"].items():
            lines += [*decoding_lines(int(many), settings, first[length["n"]]["settings"]), ""]
        lines += compression_lines(length, first[length["n"]])
    lines += ["", "## Assumptions", "", *assumptions, ""]
    lines += [f"Kernels and operations were counted at commit {made['counts'][:7]}, the host's time was measured at"]
    lines += [f"{made['host'][:7]}. SpindleKV's compression takes counts of results/benchmarks/codebook_8k.json, too."]
    return "\n".join(lines) + "\n"


def prompt_lines(length: dict, first: dict) -> list[str]:
    whole, chunks = length["prefill_seconds"], length["chunked_prefill_seconds"]
    two, single = (span(**length["prefill_with_sums_over_plain"][f"{passes} passes"], digits=1) for passes in (2, 1))
    times = length["twelve_settings_times_faster"]
    shown = ", ".join(f"{engine} {span(**times[engine], digits=1)}" for engine in ENGINES)
    lines = [f"- prefill: {span(**whole, digits=2)} s (first: {first['prefill_seconds']:.2f})"]
    if chunks != whole:
        lines += [f"- prefill in chunks of 16,384: {span(**chunks, digits=2)} s"]
    lines += [
        f"- prefill with H2O's column sums in two passes: {two} × as long; in one, with attention's own",
        f"  log-sum-exps: {single} × (first: {first['column_sums_over_plain']:.2f})",
        f"- twelve settings as a batch over one by one: {shown} (first: {first['twelve_settings_times_faster']:.1f})",
    ]
    return lines


def decoding_lines(many: int, settings: dict, first: dict) -> list[str]:
    lines = [f"Tokens per second, {many} row{'s' * (many > 1)}:", ""]
    head = ["setting", "eager", "graph", "fused", "limit", *(["first"] if many == 1 else [])]
    lines += [f"| {' | '.join(head)} |", "| :-- |" + " --: |" * (len(head) - 1)]
    for name, rates in settings.items():
        if rates is None:
            cells = ["does not fit"] * len(ENGINES) + ["–"]
        else:
            cells = [span(**rates[engine]) for engine in ENGINES] + [f"{rates['limit']:,.0f}"]
        if many == 1:
            cells.append(f"{first[name]['decode_tokens_per_s']:.0f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def compression_lines(length: dict, first: dict) -> list[str]:
    lines = ["Compression over prefill:", "", "| setting | predicted | first |", "| :-- | --: | --: |"]
    for name, share in length["compress_over_prefill"].items():
        before = first["settings"][name]["compress_seconds"] / first["prefill_seconds"]
        shown = span(**share, digits=1, times=100)
        lines.append(f"| {name} | {shown} % | {100 * before:.1f} % |")
    return lines
