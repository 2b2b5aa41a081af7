"""The rows of scripts/benchmarks/gpu_check.py: what each does, and in which of three stages."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import transformers
from transformers import PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from kvbench.evaluation.settings import Setting
from kvbench.ops.operator import kernels_on, triton_version
from kvbench.utils.environment import git_commit
from scripts.benchmarks.gpu import (
    batches,
    compiled,
    generated,
    long_prompts,
    memory,
    model_classes,
    models,
    presets,
    speed,
    whole_runs,
)
from scripts.benchmarks.gpu.processes import Row, tell_so_far
from scripts.benchmarks.gpu.stages import Clock, attempted
from tests.support.config import NAMES, method_configs
from tests.support.every_method import setting

WORK = "scripts.benchmarks.gpu.rows:"
DTYPES = (torch.float32, torch.bfloat16)
# Heads of models in use, and the settings that attend to them in each way that there is.
HEAD_DIMS, GROUPS = (64, 80, 96, 128, 256), (1, 4, 8, 16)
HEAD_PRESETS = ("snapkv", "adakv", "kivi", "spindle", "h2o", "minicache")
GROUPED_CHANNELS = 32  # KIVI's groups divide the channels of a head
COMMON_HEADS = {(64, 8), (128, 4)}  # those of most models in use
BENT_HEADS = (64, 256)  # of gpt-oss and Gemma-2
IN_FOUR_BITS = ("full", "snapkv", "kivi")
IN_BYTES = ("full", "snapkv", "pyramidkv", "spindle", "kivi", "minicache")
# Tokens of the prompt -> prefill.chunk
LENGTHS: dict[int, int | None] = {8192: None, 32768: None, 131072: 16384}
TRIAL_LENGTHS: dict[int, int | None] = {300: None, 700: 256}


@dataclass(frozen=True)
class Check:
    """What is the same for all rows."""

    dry_run: bool
    names: tuple[str, ...] = tuple(NAMES)
    commit: str | None = None  # of this code, where it is no checkout

    @property
    def device(self) -> str:
        return "cpu" if self.dry_run else "cuda:0"

    @property
    def tokens(self) -> int:
        return 120 if self.dry_run else 600


@dataclass(frozen=True)
class Stage:
    """Rows that end with a verdict, and the minutes that they have."""

    name: str
    minutes: float
    rows: Callable[[float], list[Row]]  # of the seconds that are left when it begins


def stages_of(check: Check) -> list[Stage]:
    """Is it right, as far as one preset of each kind shows it? Is it fast? Then long prompts, and all the rest."""
    lengths = TRIAL_LENGTHS if check.dry_run else LENGTHS
    *short, longest = lengths.items()
    first = first_of_each_kind(check.names)
    heads = [(128, 4)] if check.dry_run else [(dim, group) for dim in HEAD_DIMS for group in GROUPS]
    common = [shape for shape in heads if shape in COMMON_HEADS]

    def right(seconds: float) -> list[Row]:
        rows = [*presets_of(check, first), *heads_of(check, common)]
        rows += [
            Row(f"{kind}/{dtype}".replace("torch.", ""), f"{WORK}{kind}", (check, dtype), 60)
            for dtype in DTYPES
            for kind in ("batch", "generate")
        ]
        rows += [Row("quantised/nf4", f"{WORK}quantised", (check,), 60)]
        return [*rows, Row("run/niah", f"{WORK}whole_run", (check,), 90)]

    def long(seconds: float) -> list[Row]:
        rows = [Row(f"length/{n}", f"{WORK}length", (check, n), 90) for n in lengths]
        rows += [Row(f"bytes/{name}", f"{WORK}counted", (check, name), 30) for name in IN_BYTES]
        rows += [Row("second device/cuda:1", f"{WORK}second_device", (check,), 60)]
        return rows + speeds_of(check, dict([longest]), seconds - 20)

    def rest(seconds: float) -> list[Row]:
        rows = compiled_of(check) + presets_of(check, [name for name in check.names if name not in first])
        rows += heads_of(check, [shape for shape in heads if shape not in common])
        types = ("llama", "gpt_oss") if check.dry_run else sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
        return rows + [Row(f"class/{name}", f"{WORK}of_class", (check, name), 60, shares="class") for name in types]

    return [
        Stage("right", 2, right),
        Stage("fast", 3, lambda seconds: speeds_of(check, dict(short), seconds)),
        Stage("long", 2, long),
        Stage("rest", 3, rest),
    ]


def first_of_each_kind(names: Sequence[str]) -> list[str]:
    """The first preset of each combination of classes: others differ from it in numbers."""
    kinds: dict[str, str] = {}
    presets = method_configs(*names)
    for name in names:
        kinds.setdefault(str(sorted(classes(presets[name]))), name)
    return list(kinds.values())


def classes(node: object) -> Iterator[str]:
    """Every `_target_` in a method's configuration."""
    if isinstance(node, Mapping):
        yield from (str(value) for key, value in node.items() if key == "_target_")
    for part in node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ():
        yield from classes(part)


def presets_of(check: Check, names: Sequence[str]) -> list[Row]:
    return [Row(f"preset/{name}", f"{WORK}preset", (check, name), 60, shares="preset") for name in names]


def heads_of(check: Check, heads: Sequence[tuple[int, int]]) -> list[Row]:
    return [
        Row(f"heads/{dim} {group}", f"{WORK}heads", (check, dim, group), 90, shares="heads") for dim, group in heads
    ]


def compiled_of(check: Check) -> list[Row]:
    """First, since they compile for longer than others compute."""
    rows = [Row(f"fused/{dtype}".replace("torch.", ""), f"{WORK}fused", (check, dtype), 150) for dtype in DTYPES]
    return rows + [
        Row(f"bent/{head_dim} {dtype}".replace("torch.", ""), f"{WORK}bent", (check, head_dim, dtype), 120)
        for head_dim in BENT_HEADS
        for dtype in DTYPES
    ]


def speeds_of(check: Check, lengths: Mapping[int, int | None], seconds: float) -> list[Row]:
    """A table of each length, with its share of the time."""
    share = seconds / len(lengths)
    return [
        Row(f"speed/{n}", f"{WORK}speeds", (check, n, chunk, share - 10), share, timed=True)
        for n, chunk in lengths.items()
    ]


def machine(check: Check) -> dict:
    gpu = None if check.dry_run else torch.cuda.get_device_properties(0)
    return {
        "name": gpu.name if gpu else "a CPU",
        "memory_gib": round(gpu.total_memory / 2**30, 1) if gpu else 0,
        "gpus": 0 if check.dry_run else torch.cuda.device_count(),
        "kernels": kernels_on(torch.device(check.device)),
        "torch": torch.__version__,
        "triton": triton_version(),
        "transformers": transformers.__version__,
        "cuda": torch.version.cuda,
        "git": check.commit or git_commit(),
    }


@cache
def small(check: Check, device: str, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """Few layers with the heads of Llama-3-8B; the same weights on every device."""
    shape = models.TRIAL if check.dry_run else models.SMALL
    return models.sharpened(models.llama3_8b("cpu", torch.float32, **shape)).to(device, dtype)


def fitting(check: Check, name: str) -> Setting:
    """A preset for `small`, of whose heads a calibration file is written where it reads one."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "head_scores.json"
        models.write_head_scores(file, small(check, "cpu"))
        return setting(name, ratio=presets.RATIO, scores=str(file))


def preset(check: Check, name: str) -> dict:
    """A preset in float32 on the device and on the CPU, and its operators beside their references in two dtypes."""
    case = fitting(check, name)
    result = presets.preset(case, small(check, check.device), small(check, "cpu"), check.tokens)
    for dtype in DTYPES:
        result[str(dtype)] = presets.operators(case, small(check, check.device, dtype), check.tokens)
    return result


def heads(check: Check, head_dim: int, group: int) -> dict:
    """Operators beside their references in each dtype, for `group` query heads of a KV head."""
    operators = {}
    shape = {"num_attention_heads": 2 * group, "num_key_value_heads": 2, "head_dim": head_dim}
    model = models.sharpened(models.llama3_8b("cpu", torch.float32, **models.TRIAL | shape))
    for dtype in (*DTYPES, torch.float16):
        on_device = model.to(check.device, dtype)
        for name in HEAD_PRESETS:
            if name != "kivi" or head_dim % GROUPED_CHANNELS == 0:
                case = setting(name, ratio=presets.RATIO)
                operators[f"{name}, {dtype}"] = presets.operators(case, on_device, check.tokens)
    return operators


def generate(check: Check, dtype: torch.dtype) -> dict:
    return generated.beside_generate(small(check, check.device, dtype), check.tokens)


def quantised(check: Check) -> dict:
    """Weights in four bits on one GPU: FullKV beside generate, and steps with and without a CUDA graph."""
    model = generated.in_four_bits(small(check, "cpu", torch.bfloat16), check.device)
    if model is None:
        return {"absent": "bitsandbytes is not installed"}
    result = generated.beside_generate(model, check.tokens) | {"settings": {}}
    for name in IN_FOUR_BITS:
        case = setting(name, ratio=presets.RATIO)
        state = models.prefilled(case, model, check.tokens)
        caches = case.method.compress(state, models.budget_of(case, model, check.tokens))
        result["settings"][name] = presets.repeated(model, caches, state.logits)
    return result


def of_class(check: Check, model_type: str) -> dict:
    return model_classes.of_class(model_type, check.device)


def whole_run(check: Check) -> dict:
    return whole_runs.compared(check.device)


def batch(check: Check, dtype: torch.dtype) -> dict:
    settings = [setting(name, ratio=presets.RATIO) for name in batches.MIXED]
    return batches.against_alone(settings, small(check, check.device, dtype), check.tokens)


def fused(check: Check, dtype: torch.dtype) -> dict:
    settings = [setting(name, ratio=presets.RATIO) for name in compiled.FUSED]
    return compiled.fused(settings, small(check, check.device, dtype), check.tokens)


def bent(check: Check, head_dim: int, dtype: torch.dtype) -> dict:
    return compiled.bent(head_dim, 4 * check.tokens, dtype, check.device)


def second_device(check: Check) -> dict:
    """The presets of a batch on another GPU: kept sets, stored numbers and tokens of the CPU."""
    if check.dry_run or torch.cuda.device_count() < 2:
        return {"absent": True}
    compared = {}
    for name in batches.MIXED:
        case = setting(name, ratio=presets.RATIO)
        compared[name] = presets.preset(case, small(check, "cuda:1"), small(check, "cpu"), check.tokens)
    return compared


def length(check: Check, n: int) -> dict:
    return long_prompts.compared(n, check.device)


def counted(check: Check, name: str) -> dict:
    return memory.bytes_of(setting(name, ratio=presets.RATIO), small(check, check.device), 4 * check.tokens)


def speeds(check: Check, n: int, chunk: int | None, seconds: float) -> dict:
    """The table of one length, as far as the time goes."""
    clock = Clock(seconds / 60)
    dtype = torch.float32 if check.dry_run else torch.bfloat16
    model = models.llama3_8b(check.device, dtype, **(models.TRIAL if check.dry_run else {}))
    table = speed.Length(model, n, chunk, 9 if check.dry_run else 33, clock, tell_so_far)
    return {"n": n, "chunk": chunk} | attempted(table.table) | {"skipped": clock.skipped}
