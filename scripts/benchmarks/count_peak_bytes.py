"""Peak bytes of one sample's settings on a GPU, counted by running kvbench's code on tensors without memory.

A model of Llama-3-8B's shape, in bfloat16, reads a prompt, in chunks if it has more than CHUNK tokens. FullKV, SnapKV,
PyramidKV, SpindleKV and KIVI at three ratios are compressed and decode a few tokens, as in a run with decode.batch=auto
(`kvbench.evaluation.evaluate.records_of_pass`). Tensors are of the device `meta`, with shapes and storages but no
numbers, and say that they are on a GPU. A storage counts from the operation that makes it until it is freed.

What numbers would decide is assumed: a codebook has ENTRIES of the coded vectors as entries, and the query heads of a
KV head together want UNION times as many tokens as each. Operators count as their results, by their fakes, the
greedy cover with its scratch (`cover_bytes`) too, and attention as its output (flash). Left out: the rounding and
pieces of torch's allocator, CUDA's context (about 0.6 GB), cuBLAS's workspaces, and what a CUDA graph holds. No GPU has
confirmed a count.
"""

import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
import yaml
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from kvbench.benchmarks import Sample
from kvbench.configuration.conf import composed
from kvbench.evaluation import evaluate
from kvbench.evaluation.decode import batched, read
from kvbench.evaluation.pending_tasks import Task, by_pass
from kvbench.evaluation.prompts import Prompt
from kvbench.evaluation.record import Run
from kvbench.evaluation.settings import Setting, build_settings
from kvbench.methods.spindlekv.codebook import coding, storage
from kvbench.methods.spindlekv.codebook.coding import cover_bytes
from kvbench.methods.spindlekv.codebook.sizes import Sizes
from kvbench.models import probe
from kvbench.models.attention_interface import ATTENTION
from kvbench.ops import attention
from kvbench.ops.operator import use_kernels
from kvbench.prefill import in_chunks
from scripts.frame import script_parser, tell

LENGTHS = (8_192, 32_768, 131_072)
CHUNK = 16_384
TOKENS = 3  # decoded
ENTRIES, UNION = 0.5, 2.0
METHODS, RATIOS = ("full", "snapkv", "pyramidkv", "spindle", "kivi"), (0.1, 0.2, 0.4)
SHAPE = Path(__file__).parents[2] / "conf" / "model" / "llama3-8b-random.yaml"

CUDA = torch.device("cuda", 0)
DEVICE, IS_CUDA = Tensor.device.__get__, Tensor.is_cuda.__get__


class Live(TorchDispatchMode):
    """Bytes of the storages on a GPU that live, and the most that did, with what was done then."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.peak = 0
        self.at = self.doing = ""
        self.stages: dict[str, int] = {}
        self.known: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.name().startswith("kvbench::greedy_covers"):
            sets, n, d = args[0].shape
            scratch = sets * (cover_bytes(n, d) - 4 * n * d)  # its vectors are there
            self.note(self.bytes + scratch)
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and tensor.is_meta:
                self.add(tensor.untyped_storage())
        return out

    def add(self, memory: torch.UntypedStorage) -> None:
        key, size = memory._cdata, memory.nbytes()
        if key in self.known:
            return

        def freed(_: object) -> None:
            del self.known[key]
            self.bytes -= size

        self.known[key] = weakref.ref(memory, freed)
        self.bytes += size
        self.note(self.bytes)

    def note(self, held: int) -> None:
        self.stages[self.doing] = max(self.stages.get(self.doing, 0), held)
        if held > self.peak:
            self.peak, self.at = held, self.doing


class FakeGPU(TorchFunctionMode):
    """Tensors of the device meta say that they are on a GPU; attention makes its output alone, as flash does."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == DEVICE:
            device = func(*args)
            return CUDA if device.type == "meta" else device
        if func is torch.device:
            return func(*args)
        if func == IS_CUDA:
            return bool(args[0].is_meta)
        kwargs = {name: on_meta(value) for name, value in (kwargs or {}).items()}
        if func is F.scaled_dot_product_attention:
            return args[0].new_empty(*args[0].shape[:-1], args[2].shape[-1])
        return func(*map(on_meta, args), **kwargs)


def on_meta(value: Any) -> Any:
    """The device meta in place of a GPU."""
    gpu = isinstance(value, str | torch.device) and str(value).startswith("cuda")
    return torch.device("meta") if gpu else value


def read_sizes(covered: Sequence[coding.Covered]) -> None:
    """In place of `coding.read_sizes`: what the numbers on the device are assumed to be."""
    for group in covered:
        count, streams, queries, n = group.selected.shape
        heads, books = group.raw.shape[1], group.keys.sizes.shape[0] // count
        window = group.raw.shape[2]
        most = group.rows.index.shape[1] * books // streams  # tokens of a stream, if no head wants the same
        each = max(min(most // queries, n) - window, 0)
        union = min(int(UNION * each), n - window) if queries > 1 else each
        entries = int(ENTRIES * union * streams / books)
        sizes = Sizes(
            [each] * (streams * queries),
            [union] * heads,
            [window] * heads,
            [entries] * books,
            [entries] * books,
            [1] * streams,
            [0] * (streams - 1),
        )
        group.sizes = [sizes] * count


@contextmanager
def fake_gpu() -> Iterator[Live]:
    """Within it, tensors of a CUDA device have no memory, and their bytes are counted."""
    live = Live()
    with ExitStack() as stack:
        for name, replacement in {"device": lambda *_: ExitStack(), "synchronize": lambda *_: None}.items():
            stack.enter_context(patch.object(torch.cuda, name, replacement))
        for name in ("reset_peak_memory_stats", "max_memory_allocated"):
            stack.enter_context(patch.object(torch.cuda, name, lambda *_: 0))
        stack.enter_context(patch.object(coding, "read_sizes", read_sizes))
        stack.enter_context(patch.object(storage, "read_sizes", read_sizes))
        stack.enter_context(patch.object(attention, "causal_lower_right", lambda *_: None))  # no bias of elements
        stack.enter_context(use_kernels("triton"))
        stack.enter_context(live)
        stack.enter_context(FakeGPU())
        yield live


def llama(layers: int | None) -> PreTrainedModel:
    """Of Llama-3-8B's shape, or with another number of layers; without memory. kvbench finds a model's rotation by its
    numbers: those of a narrow model with the same heads are this one's."""
    shape = yaml.safe_load(SHAPE.read_text(encoding="utf-8"))["random"]
    shape |= {} if layers is None else {"num_hidden_layers": layers}
    narrow = shape | {"vocab_size": 8, "hidden_size": 32, "intermediate_size": 8}
    with torch.device("meta"):
        model = of_shape(shape)
    probe._PROBED[model] = probe._probed(of_shape(narrow))
    return model


def of_shape(shape: dict[str, Any]) -> PreTrainedModel:
    config = AutoConfig.for_model(**shape)
    return AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION, dtype=torch.bfloat16).eval()


def decoded(live: Live, run: Run, rows: Sequence[Any]) -> list[Any]:
    """In place of `answer`: a few tokens for each row."""
    live.doing = f"decoding {len(rows)} settings" if len(rows) > 1 else f"decoding {rows[0].setting.label}"
    cache = batched([row.caches for row in rows])
    for _ in range(TOKENS):
        read(run.loaded.model, cache, torch.zeros(1, dtype=torch.long))
    return [SimpleNamespace(device_peak=None)] * len(rows)


class Labelled:
    """A run's stage, which says what is being done."""

    def __init__(self, live: Live) -> None:
        object.__setattr__(self, "live", live)

    def __setattr__(self, name: str, text: str) -> None:
        self.live.doing = text.split(" · ")[-1]


def peak(n: int, settings: Sequence[Setting], chunk: int | None, layers: int | None = None) -> dict[str, object]:
    """The most bytes at the same time for a prompt of n tokens, what was done then, and the most at each step."""
    model = llama(layers)
    with fake_gpu() as live, torch.inference_mode():
        live.doing = "loading"
        model.to_empty(device="meta")  # here each storage is counted
        weights = live.bytes
        sample = Sample(id="a", prompt="", answers=(), max_new_tokens=64, meta={})
        prompt = Prompt(sample, torch.zeros(n, dtype=torch.long), torch.zeros(0, dtype=torch.long))
        count = model.config.num_hidden_layers
        tasks = [Task(setting, setting.budget_at(n, count, 64), [prompt], count) for setting in settings]
        run = Run("", "", SimpleNamespace(model=model), None, settings, stage=Labelled(live))
        with (
            patch.object(evaluate, "answer", lambda run, prompt, rows: decoded(live, run, rows)),
            patch.object(evaluate, "record", lambda *_: {}),
        ):
            for plan, sharing in by_pass(tasks).items():
                for _ in evaluate.records_of_pass(run, in_chunks(plan, chunk), sharing, None):
                    pass
    return {"peak_bytes": live.peak, "at": live.at, "weight_bytes": weights, "stages": live.stages}


def main() -> None:
    parser = script_parser(__doc__ or "")
    parser.add_argument("--lengths", type=int, nargs="*", default=LENGTHS, help="of prompts; default: %(default)s")
    parser.add_argument("--layers", type=int, help="of the model; default: 32")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    settings = build_settings(composed([f"method=[{','.join(METHODS)}]"])["method"], list(RATIOS), None, None)
    counted = {str(n): peak(n, settings, CHUNK, options.layers) for n in options.lengths}
    what = "bytes of storages that live at the same time, counted without a GPU"
    assumed = {"prefill_chunk": CHUNK, "entries": ENTRIES, "union": UNION}
    tell(
        {"what": what, "settings": [setting.label for setting in settings], **assumed, "prompts": counted}, options.json
    )


if __name__ == "__main__":
    main()
