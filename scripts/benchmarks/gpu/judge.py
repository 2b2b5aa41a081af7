"""What a check demands: a threshold for every comparison, and a list of what misses one."""

from collections.abc import Iterator

from kvbench.ops.operator import LAUNCHES
from scripts.benchmarks.gpu import batches
from scripts.benchmarks.gpu.model_classes import LOGITS
from scripts.benchmarks.gpu.presets import OUTPUTS

OVER = 1.001  # bytes that are asked for over counted ones: counts of rows, positions


def failures(found: dict[str, dict], complete: bool) -> list[str]:
    """One line for each comparison that failed; `complete`: all rows about operators have run."""
    lines = [f"{name}: {line}" for name, one in found.items() for line in wrong(name.split("/")[0], one)]
    if complete:
        lines += [
            f"operator {name} was never called" for name in sorted(set(LAUNCHES) - called(found)) if name[0] != "_"
        ]
    return lines


def wrong(kind: str, one: dict) -> Iterator[str]:
    """What is wrong with a row."""
    if "error" in one:
        yield one["error"]
    elif kind == "preset":
        yield from preset(one)
    elif kind == "class" and "absent" not in one:
        yield from model_class(one)
    elif kind == "second device":
        for name, other in one.items():
            if name != "absent":
                yield from (f"{name}: {line}" for line in preset(other))
    elif kind == "heads":
        for name, operators in one.items():
            yield from (f"{name}: {line}" for line in compared(operators))
    elif kind == "length":
        yield from compared(one)
    elif kind == "run":
        if one["pairs"] != one["records"] or not one["records"]:
            yield f"{one['pairs']} of {one['records']} records have one of the CPU beside them"
        yield from (f"{name} has other records than on the CPU" for name in one["different"])
    elif kind == "batch":
        yield from (f"{name} decodes other tokens than alone" for name in one["different"])
    elif kind == "generate" and batches.differ(one["tokens"], one["generated"], one["close_call"]):
        yield "FullKV decodes other tokens than transformers' generate"
    elif kind == "quantised" and "absent" not in one:
        if batches.differ(one["tokens"], one["generated"], one["close_call"]):
            yield "FullKV decodes other tokens than transformers' generate"
        for name, other in one["settings"].items():
            yield from (f"{name}: {line}" for line in repeated(other))
    elif kind == "bytes" and one["requested"] is not None and not 1 <= one["over"] <= OVER:
        yield f"{one['over']} of the counted bytes are asked of the allocator"
    elif kind == "speed":
        parts = one["settings"] | {key: one.get(key, {}) for key in ("batch", "generate", "column_sums")}
        parts |= {f"{name}, fused": part for name, part in one.get("fused", {}).items()}
        yield from (f"{name}: {part['error']}" for name, part in parts.items() if "error" in part)
        for name, part in parts.items():
            for engine in part.get("expected", ()):
                if not part[f"{engine}_tokens_per_s"]:
                    yield f"{name}: no step was decoded by engine={engine}"


def preset(one: dict) -> Iterator[str]:
    """What differs between the device and the CPU, and operators that differ from their references."""
    if not one["kept_equal"]:
        yield "other tokens are kept than on the CPU"
    allowed = max(OUTPUTS, one.get("by_rounding", 0.0))
    if not one["outputs"] <= allowed:
        yield f"attention differs by {one['outputs']:.1e} from the CPU's, more than {allowed:.0e}"
    if batches.differ(one["tokens"], one["cpu_tokens"], one["close_call"]):
        yield "other tokens are decoded than on the CPU"
    yield from repeated(one)
    for key, operators in one.items():
        if key.startswith("torch."):
            yield from (f"{key}: {line}" for line in compared(operators))


def model_class(one: dict) -> Iterator[str]:
    """What a model computes on the device that it does not on the CPU."""
    if not one["logits"] <= LOGITS:
        yield f"logits differ by {one['logits']:.1e} from the CPU's, more than {LOGITS:.0e}"
    if batches.differ(one["tokens"], one["cpu_tokens"], one["close_call"]):
        yield "other tokens are decoded than on the CPU"
    if "graph_tokens" in one:  # a step that cannot be recorded is launched, and one line says so
        yield from repeated(one | {"graph_expected": False})


def repeated(one: dict) -> Iterator[str]:
    """What differs between steps that Python launches and those that a CUDA graph repeats."""
    if batches.differ(one["eager_tokens"], one["graph_tokens"], one["graph_close_call"]):
        yield "other tokens are decoded by a CUDA graph than step by step"
    if one["graph_expected"] and not one["graph_steps"]:
        yield "no step is repeated by a CUDA graph"


def compared(operators: dict[str, dict]) -> Iterator[str]:
    for name, one in operators.items():
        if not one["over_allowed"] <= 1:
            yield f"{name} differs by {one['difference']:.1e} from its reference, {one['over_allowed']:.1f} × the limit"
        if one.get("integers", 0):
            yield f"{name}: {one['integers']:.1%} of the integers differ from the reference's"


def called(found: dict[str, dict]) -> set[str]:
    """The operators that any preset called."""
    rows = [one for name, one in found.items() if name.startswith("preset/")]
    return {name for one in rows for key, value in one.items() if key.startswith("torch.") for name in value}
