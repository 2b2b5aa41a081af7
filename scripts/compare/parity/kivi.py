"""KIVI's cache: what is quantised when, codes, scales and minima, after prefill and while decoding.

Its attention module runs; its Triton kernel is replaced by the repository's own torch twin, and its CUDA product by
one over dequantised rows (it decides nothing that is compared).
"""

import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from kvbench.methods import Kivi
from kvbench.ops.quantise import unpack_groups
from scripts.compare.parity.agreement import Agreement
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.stand_ins import attention_module

STEPS = 70
HEADS, HEAD_DIM = 3, 64
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
SETTINGS = ((2, 32, 128), (4, 32, 128), (4, 32, 32), (2, 64, 64), (8, 32, 64))  # bits, group, residual
LENGTHS = (20, 32, 127, 128, 129, 200, 600)


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    packing = load(root, "quant/new_pack.py")
    module, version = load(root, file, quant_new_pack=packing), commit(root)
    warnings.filterwarnings("ignore", message="Using a non-tuple sequence", module=".*new_pack.*")
    module.apply_rotary_pos_emb = lambda queries, keys, *args: (queries, keys)  # the tensors are after RoPE
    module.triton_quantize_and_pack_along_last_dim = twin_of(packing)
    for name, dtype in DTYPES.items():
        rows = {
            part: Agreement(project, version, "LlamaAttention_KIVI.forward", "Kivi", name, "random MHA", part)
            for part in ("raw rows", "scales and minima", "codes")
        }
        for number, ((bits, group, residual), n) in enumerate(product(SETTINGS, LENGTHS)):
            generator = torch.Generator().manual_seed(number)
            rows_of = [torch.randn(HEADS, n + STEPS, HEAD_DIM, generator=generator).to(dtype) for _ in range(3)]
            module.cuda_bmm_fA_qB_outer = product_of(packing)
            theirs = released(module, packing, rows_of, n, bits, group, residual)
            storage = Kivi(bits=bits, group=group, residual=residual)
            for which, sequence in enumerate((storage.key_sequence, storage.value_sequence)):
                held = sequence(rows_of[1 + which][:, :n])
                for step in range(STEPS + 1):
                    if step:
                        held.append(rows_of[1 + which][:, n + step - 1 : n + step])
                    if step in (0, 1, 13, STEPS):
                        example = f"{('keys', 'values')[which]}, seed {number}, {bits} bits, n={n}, step {step}"
                        count(rows, held, theirs[step][which], bits, example)
        rows["codes"].note = "largest gap: codes"
        rows["scales and minima"].note = "largest gap: of a scale, relative, or of a minimum, absolute"
        yield from rows.values()


def released(module, packing, tensors, n: int, bits: int, group: int, residual: int) -> list[tuple]:
    """After the prompt and each step, of keys and of values: codes, scale, minimum [heads, len, …] and raw rows."""
    past, out = None, []
    for step in range(STEPS + 1):
        start, end = (0, n) if step == 0 else (n + step - 1, n + step)
        this = attention_module(*(x[:, start:end] for x in tensors))
        this.k_bits, this.v_bits, this.group_size, this.residual_length = bits, bits, group, residual
        hidden = torch.zeros(1, end - start, 1)
        past = module.LlamaAttention_KIVI.forward(this, hidden, past_key_value=past, use_cache=True)[2]
        keys = [None if x is None else x.transpose(2, 3) for x in (past[0], past[2], past[3])]
        out.append(
            tuple(
                (None if codes is None else packing.unpack_tensor(codes, bits, dim)[0], scale, minimum, raw)
                for (codes, scale, minimum), raw, dim in ((keys, past[1], 2), ((past[4], past[6], past[7]), past[5], 3))
            )
        )
    return out


def twin_of(packing: ModuleType):
    def quantise(rows: Tensor, group: int, bits: int) -> tuple[Tensor, Tensor, Tensor]:
        codes, scale, minimum = packing.quant_and_pack_vcache(rows, group, bits)
        return codes, scale.squeeze(-1), minimum.squeeze(-1)

    return quantise


def product_of(packing: ModuleType):
    def multiply(group: int, left: Tensor, codes: Tensor, scale: Tensor, minimum: Tensor, bits: int) -> Tensor:
        rows = packing.unpack_tensor(codes, bits, 3).to(scale.dtype).unflatten(-1, (-1, group))
        return left @ (rows * scale[..., None] + minimum[..., None]).flatten(-2)

    return multiply


def count(rows: dict[str, Agreement], held, theirs: tuple, bits: int, example: str) -> None:
    """Tally one state of a cache's keys or values.

    In 16 bits the released code rounds every step of its arithmetic to the dtype; kvbench computes in float32 and
    rounds what it stores. A scale may part by a unit in the last place or two, a code by what that amounts to.
    """
    codes, scale, minimum, raw = theirs
    raw = held.residual[:, :0] if raw is None else raw[0]
    equal = raw.shape == held.residual.shape and torch.equal(raw, held.residual)
    tally(rows["raw rows"], torch.tensor([0.0 if equal else 1.0]), 0.0, example)
    if codes is None:
        length = float(held.quantised)  # rows quantised here only
        tally(rows["codes"], torch.tensor([length]), 0.0, example)
        return
    epsilon = torch.finfo(scale.dtype).eps if scale.dtype != torch.float32 else 0.0
    packed, my_scale, my_minimum = held.codes()
    mine = unpack_groups(packed, bits, held.quantiser.group, held.axis).flatten(held.axis, held.axis + 1)
    scale, minimum = scale[0], minimum[0]
    apart = torch.stack([(my_scale - scale) / scale, my_minimum - minimum]).float().abs()
    tally(rows["scales and minima"], apart, 2 * epsilon, example)
    tally(rows["codes"], (mine.int() - codes.int()).abs().float(), (1 + 3 * epsilon * 2**bits) * (epsilon > 0), example)


def tally(row: Agreement, apart: Tensor, allowed: float, example: str) -> None:
    row.cases += 1
    row.compared += apart.numel()
    row.equal += int((apart == 0).sum())
    row.dtype_rounding += int(((apart > 0) & (apart <= allowed)).sum())
    row.different += int((apart > allowed).sum())
    row.largest_gap = max(row.largest_gap, float(apart.max()) if apart.numel() else 0.0)
    if (apart > allowed).any() and len(row.examples) < 3:
        row.examples.append(f"{example}: {int((apart > allowed).sum())} of {apart.numel()}")
