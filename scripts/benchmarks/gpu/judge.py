"""What a check demands: a threshold for every comparison, and a list of what misses one."""

from collections.abc import Iterator

from kvbench.ops.operator import LAUNCHES
from scripts.benchmarks.gpu import batches
from scripts.benchmarks.gpu.model_classes import LOGITS
from scripts.benchmarks.gpu.presets import OUTPUTS

OVER = 1.001  # bytes that are asked for over counted ones: counts of rows, positions


def failures(rows: dict[str, dict], complete: bool) -> list[str]:
    """One line for each comparison that failed; `complete`: all rows about operators have run."""
    lines = [f"{name}: {line}" for name, row in rows.items() for line in wrong(name.split("/")[0], row)]
    if complete:
        lines += [
            f"operator {name} was never called" for name in sorted(set(LAUNCHES) - called(rows)) if name[0] != "_"
        ]
    return lines


def wrong(kind: str, row: dict) -> Iterator[str]:
    """The faults of a row."""
    if "error" in row:
        yield row["error"]
    elif kind == "preset":
        yield from preset(row)
    elif kind == "class" and "absent" not in row:
        yield from model_class(row)
    elif kind == "second device":
        for name, result in row.items():
            if name != "absent":
                yield from (f"{name}: {line}" for line in preset(result))
    elif kind == "heads":
        for name, operators in row.items():
            yield from (f"{name}: {line}" for line in compared(operators))
    elif kind == "length":
        yield from compared(row)
    elif kind == "run":
        if row["pairs"] != row["records"] or not row["records"]:
            yield f"{row['pairs']} of {row['records']} records have one of the CPU beside them"
        yield from (f"{name} has other records than on the CPU" for name in row["different"])
    elif kind == "batch":
        yield from (f"{name} decodes other tokens than alone" for name in row["different"])
    elif kind == "fused":
        yield from fused(row)
    elif kind == "bent":
        if row["fallback"]:
            yield f"flex_attention does not compile: {row['fallback']}"
        yield from compared({name: gap for name, gap in row.items() if name != "fallback"})
    elif kind == "generate" and batches.differ(row["tokens"], row["generated"], row["close_call"]):
        yield "FullKV decodes other tokens than transformers' generate"
    elif kind == "quantised" and "absent" not in row:
        if batches.differ(row["tokens"], row["generated"], row["close_call"]):
            yield "FullKV decodes other tokens than transformers' generate"
        for name, steps in row["settings"].items():
            yield from (f"{name}: {line}" for line in repeated(steps))
    elif kind == "bytes" and row["requested"] is not None and not 1 <= row["over"] <= OVER:
        yield f"{row['over']} of the counted bytes are asked of the allocator"
    elif kind == "speed":
        parts = row["settings"] | {key: row.get(key, {}) for key in ("batch", "generate", "column_sums")}
        parts |= {f"{name}, fused": part for name, part in row.get("fused", {}).items()}
        yield from (f"{name}: {part['error']}" for name, part in parts.items() if "error" in part)
        for name, part in parts.items():
            for engine in part.get("expected", ()):
                if not part[f"{engine}_tokens_per_s"]:
                    yield f"{name}: no step was decoded by engine={engine}"


def preset(row: dict) -> Iterator[str]:
    """What differs between the device and the CPU, and operators that differ from their references."""
    if not row["kept_equal"]:
        yield "other tokens are kept than on the CPU"
    allowed = max(OUTPUTS, row.get("by_rounding", 0.0))
    if not row["outputs"] <= allowed:
        yield f"attention differs by {row['outputs']:.1e} from the CPU's, more than {allowed:.0e}"
    if batches.differ(row["tokens"], row["cpu_tokens"], row["close_call"]):
        yield "other tokens are decoded than on the CPU"
    yield from repeated(row)
    for key, operators in row.items():
        if key.startswith("torch."):
            yield from (f"{key}: {line}" for line in compared(operators))


def model_class(row: dict) -> Iterator[str]:
    """How a model's results on the device differ from the CPU's."""
    if not row["logits"] <= LOGITS:
        yield f"logits differ by {row['logits']:.1e} from the CPU's, more than {LOGITS:.0e}"
    if batches.differ(row["tokens"], row["cpu_tokens"], row["close_call"]):
        yield "other tokens are decoded than on the CPU"
    if "graph_tokens" in row:  # a step that cannot be recorded is launched, and one line says so
        yield from repeated(row | {"graph_expected": False})


def repeated(row: dict) -> Iterator[str]:
    """What differs between steps that Python launches and those that a CUDA graph repeats."""
    if batches.differ(row["eager_tokens"], row["graph_tokens"], row["graph_close_call"]):
        yield "other tokens are decoded by a CUDA graph than step by step"
    if row["graph_expected"] and not row["graph_steps"]:
        yield "no step is repeated by a CUDA graph"


def fused(row: dict) -> Iterator[str]:
    """What differs between steps that Python launches and fused layers."""
    for name, steps in row.items():
        if name == "absent":
            continue
        if batches.differ(steps["eager_tokens"], steps["tokens"], steps["close_call"]):
            yield f"{name}: other tokens are decoded by fused layers than step by step"
        if steps["engine"] != "fused":
            yield f"{name}: no step was decoded by engine=fused"


def compared(operators: dict[str, dict]) -> Iterator[str]:
    for name, operator in operators.items():
        if not operator["over_allowed"] <= 1:
            difference, share = operator["difference"], operator["over_allowed"]
            yield f"{name} differs by {difference:.1e} from its reference, {share:.1f} × the limit"
        if operator.get("integers", 0):
            yield f"{name}: {operator['integers']:.1%} of the integers differ from the reference's"


def called(rows: dict[str, dict]) -> set[str]:
    """The operators that any preset called."""
    presets = [row for name, row in rows.items() if name.startswith("preset/")]
    return {name for row in presets for key, value in row.items() if key.startswith("torch.") for name in value}
