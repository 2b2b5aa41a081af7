"""Probes: every value against a plain dense computation, and whole runs of them."""

import json
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from kvbench import probes
from kvbench.errors import UserError
from kvbench.evaluation import probes as evaluation
from kvbench.evaluation.probes import greedy_answer, observe, rounded
from kvbench.evaluation.prompts import Prompt
from kvbench.methods import SimLayerKV
from kvbench.models import LoadedModel, ModelSpec
from kvbench.ops.attention import TILE
from kvbench.papers.captions import title
from kvbench.papers.experiment import Experiment, load
from kvbench.prefill import full as prefill
from kvbench.probes.base import ALL, Observation, build_probes
from kvbench.records import gather
from kvbench.records import load as load_records
from kvbench.run import run as main
from tests.ops.test_greedy_cover import LargestFloat
from tests.support.runs import compose, run
from tests.support.tiny import FAMILIES, LAYOUTS, prompt, random_layer, tiny_model

N = 41
CASES = [(family, "gqa") for family in FAMILIES] + [("llama", layout) for layout in LAYOUTS if layout != "gqa"]


def seen(probe, family="llama", layout="gqa", n=N, before=None) -> list[torch.Tensor]:
    """The probe's values of each layer of a tiny model, as a run would store them."""
    (values,) = observe(tiny_model(family, layout), prompt(n), before or n, [Observation("probe", probe, "{}")])
    return [torch.tensor(of_layer, dtype=torch.float64) for of_layer in values]


def same(ours: list[torch.Tensor], plain: list[torch.Tensor]) -> None:
    """Equal within the stored digits, and different from layer to layer."""
    assert len(ours) == len(plain) == 3
    for a, b in zip(ours, plain, strict=True):
        assert_close(a, b, atol=2e-5, rtol=2e-4)
    assert not torch.allclose(ours[0], ours[1], atol=1e-3)


def projected(family: str, layout: str, kind: str) -> list[torch.Tensor]:
    """Keys before RoPE or values of each layer, as the model's own modules give them: [kv heads, N, head_dim]."""
    model, found = tiny_model(family, layout, implementation="eager"), []
    for layer in model.model.layers:
        module = getattr(layer.self_attn, "k_norm", None) if kind == "keys" else None
        module = module or getattr(layer.self_attn, "k_proj" if kind == "keys" else "v_proj")
        module.register_forward_hook(lambda _, __, out: found.append(out.reshape(N, -1, 8).transpose(0, 1).double()))
    with torch.no_grad():
        model(prompt(N)[None])
    return found


def attentions(family: str, layout: str, n: int = N) -> list[torch.Tensor]:
    """Softmax attention of each layer by transformers' eager code: [heads, n, n]."""
    with torch.no_grad():
        out = tiny_model(family, layout, implementation="eager")(prompt(n)[None], output_attentions=True)
    return [layer[0].double() for layer in out.attentions]


def cosines(vectors: torch.Tensor) -> torch.Tensor:
    units = torch.nn.functional.normalize(vectors, dim=-1)
    return units @ units.transpose(-1, -2)


@pytest.mark.parametrize("of, theta", [("keys", 0.3), ("values", 0.5)])
@pytest.mark.parametrize("family, layout", CASES)
def test_similar_pairs_are_those_of_a_plain_count(family, layout, of, theta):
    plain = []
    for vectors in projected(family, layout, of):
        pairs = [cosine[a, b] > theta for cosine in cosines(vectors) for a in range(N) for b in range(a)]
        plain.append(torch.tensor(pairs).reshape(len(vectors), -1).double().mean(dim=1))
    same(seen(probes.SimilarPairs(of, theta), family, layout), plain)


@pytest.mark.parametrize("of", ["keys", "values"])
def test_the_nearest_vector_is_another_tokens(of):
    plain = []
    for vectors in projected("qwen3", "gqa", of):
        plain.append((cosines(vectors) - 3 * torch.eye(N)).amax(dim=-1).mean(dim=-1))
    same(seen(probes.NearestVector(of), "qwen3"), plain)


def test_similarity_crosses_tiles(monkeypatch):
    whole = [probe.observe(random_layer(n=90), 90) for probe in similarity_of_values()]
    monkeypatch.setattr("kvbench.probes.similarity.TILE", 7)
    tiled = [probe.observe(random_layer(n=90), 90) for probe in similarity_of_values()]
    assert_close(tiled, whole, atol=0, rtol=1e-12)


def similarity_of_values():
    return probes.SimilarPairs("values", 0.2), probes.NearestVector("values")


@pytest.mark.parametrize("family, layout", CASES)
def test_sparsity_is_the_fewest_tokens_that_hold_the_attention(family, layout):
    plain = []
    for attention in attentions(family, layout):
        votes = attention[:, -8:, :-8].sum(dim=1)  # [heads, N - 8]
        counts = [next(k for k in range(1, N) if sum(sorted(head.tolist())[-k:]) >= 0.9 * head.sum()) for head in votes]
        plain.append(torch.tensor(counts, dtype=torch.float64) / (N - 8))
    same(seen(probes.AttentionSparsity(0.9, window=8), family, layout), plain)


def test_even_attention_is_not_sparse_and_one_token_is_as_sparse_as_can_be():
    layer = random_layer(n=108, window=8)
    layer.queries = torch.zeros_like(layer.queries)
    even = probes.AttentionSparsity(0.9, window=8).observe(layer, 108)
    assert (even == 0.9).all()
    layer = random_layer(n=108, window=8)
    layer.queries = 1e3 * layer.keys[:, 5:6].repeat_interleave(3, dim=0).expand(-1, 8, -1)
    layer.keys[:, :5] = layer.keys[:, 6:] = 0
    assert (probes.AttentionSparsity(0.9, window=8).observe(layer, 108) == 0.01).all()
    assert (probes.AttentionEntropy(window=8).observe(layer, 108) < 1e-3).all()


@pytest.mark.parametrize("family, layout", CASES)
@pytest.mark.parametrize("window", [8, 999])
def test_entropy_is_over_what_a_query_sees(family, layout, window):
    plain = []
    for attention in attentions(family, layout):
        rows = range(max(1, N - window), N)
        entropy = [-(a := attention[:, i, : i + 1].clamp_min(1e-300)).mul(a.log()).sum(dim=-1) for i in rows]
        plain.append(
            torch.stack([h / torch.tensor(i + 1.0).log() for h, i in zip(entropy, rows, strict=True)]).mean(dim=0)
        )
    same(seen(probes.AttentionEntropy(window), family, layout), plain)


@pytest.mark.parametrize("family, layout", CASES)
def test_lazy_mass_of_the_prompt_is_the_attention_to_sinks_and_recents(family, layout):
    plain = [a[:, -5:, [*range(3), *range(N - 9, N)]].sum(dim=-1).mean(dim=-1) for a in attentions(family, layout)]
    same(seen(probes.LazyMass(sinks=3, window=9, w_last=5), family, layout), plain)


def test_lazy_mass_is_what_simlayerkv_decides_by():
    layer = random_layer(n=60)
    method = SimLayerKV(sinks=2, window=10, w_last=4)
    mass = probes.LazyMass(sinks=2, window=10, w_last=4).observe(layer, 60)
    assert mass.mean().item() == pytest.approx(method.score(layer).item())


def test_lazy_mass_of_decoding_is_the_first_answered_tokens():
    plain = [a[:, 30, [*range(3), *range(22, 31)]].sum(dim=-1) for a in attentions("llama", "gqa")]
    same(seen(probes.LazyMass("decode", sinks=3, window=9), before=30), plain)


@pytest.mark.parametrize("family, layout", CASES)
@pytest.mark.parametrize("bins", [7, 99])
def test_lazy_tokens_have_recents_of_their_own_in_even_stretches(family, layout, bins):
    plain = []
    for attention in attentions(family, layout):
        mass = torch.stack(
            [attention[:, i, sorted({*range(min(i + 1, 3)), *range(max(0, i - 8), i + 1)})].sum() for i in range(N)]
        ) / len(attention)
        stretches = [part.mean() for part in mass[:30].tensor_split(min(bins, 30))]
        plain.append(torch.cat([torch.stack(stretches), mass[30:]]))
    same(seen(probes.LazyTokens(sinks=3, window=9, bins=bins), family, layout, before=30), plain)


@pytest.mark.parametrize("family, layout", CASES)
@pytest.mark.parametrize("bins", [6, 64])
def test_a_map_is_the_mean_attention_of_stretches(family, layout, bins):
    plain = []
    for attention in attentions(family, layout):
        parts = list(torch.arange(N).tensor_split(min(bins, N)))
        mean = attention.mean(dim=0)
        plain.append(
            torch.stack([torch.stack([mean[rows][:, keys].sum() / len(rows) for keys in parts]) for rows in parts])
        )
    ours = seen(probes.AttentionMap(bins=bins), family, layout)
    same(ours, plain)
    assert all((a.sum(dim=-1) - 1).abs().max() < 1e-3 for a in ours)


def test_chosen_layers_are_the_models_own():
    every, some = seen(probes.AttentionMap(bins=4)), seen(probes.AttentionMap(layers=[2, 0], bins=4))
    assert_close(some, [every[2], every[0]])


def test_probes_share_one_pass_and_hold_one_layer(monkeypatch):
    """Every layer's state is gone before the next one's is made."""
    alive, passes = [], []
    real = prefill.CaptureLayer.observe

    def watch(layer, query, scaling):
        alive.append(sum(state() is not None for state in held))
        state = real(layer, query, scaling)
        held.append(torch.utils.weak.weakref.ref(state))
        return state

    held: list = []
    monkeypatch.setattr(prefill.CaptureLayer, "observe", watch)
    monkeypatch.setattr(evaluation, "prefill", lambda *a: passes.append(a) or prefill.prefill(*a))
    some = [Observation(str(i), p, "{}") for i, p in enumerate((probes.SimilarPairs(), probes.AttentionMap()))]
    observe(tiny_model(), prompt(N), N, some)
    assert len(passes) == 1
    assert len(held) == 3 and alive == [0, 0, 0]


@pytest.mark.parametrize(
    "probe",
    [
        probes.SimilarPairs("values"),
        probes.NearestVector("values"),
        probes.AttentionSparsity(),
        probes.LazyTokens(),
        probes.AttentionMap(),
    ],
)
def test_memory_does_not_grow_with_the_square_of_the_prompt(probe):
    n = 1500
    layer = random_layer(heads=4, kv_heads=2, n=n, window=32 if probe.needs.window == 32 else ALL)
    with LargestFloat() as largest:
        probe.observe(layer, n)
    assert largest.elements <= 2 * TILE * n


@pytest.mark.parametrize("question", [0, 5])
def test_rows_after_the_prompt_are_the_attention_of_decoding(question):
    """The answer is generate's, and what is seen of it in one pass is what each decoding step saw."""
    eager, model = tiny_model(implementation="eager"), tiny_model()
    ids = prompt(30)
    out = eager.generate(
        ids[None], max_new_tokens=6, do_sample=False, return_dict_in_generate=True, output_attentions=True
    )
    sample = main.Sample("s", "", (), 6)
    asked = Prompt(sample, ids[: 30 - question], ids[30 - question :])
    loaded = LoadedModel(ModelSpec("tiny", 512, hub_id="none"), model, None, "")
    loaded.stop_tokens = frozenset()
    answer = greedy_answer(main.Run("", "", loaded, None, ()), asked)
    assert answer.tolist() == out.sequences[0, 30:].tolist()
    whole = torch.cat([ids, answer])
    (values,) = observe(model, whole, 30, [Observation("p", probes.LazyTokens(2, 6, bins=1), "{}")])
    for layer, of_layer in enumerate(values):
        for step in range(1, 6):  # the first token comes from prefill
            row = out.attentions[step][layer][0, :, 0]  # [heads, 30 + step]
            mass = (row[:, :2].sum() + row[:, -6:].sum()) / len(row)
            assert of_layer[step] == pytest.approx(mass.item(), abs=2e-5)  # after the prompt's one stretch


def test_stored_values_keep_five_digits():
    assert rounded(torch.tensor([[1 / 3], [2e-7 / 3]])) == [[0.33333], [6.6667e-08]]


# Runs


def arguments(folder: Path, out: Path, *more: str) -> list[str]:
    return [
        *(f"model.path={folder}", "model.max_length=4096", f"output_dir={out}"),
        *("benchmark.lengths=[320]", "benchmark.depths=[0,50,100]", "benchmark.max_new_tokens=4", *more),
    ]


EVERY = "probe=[key_similarity,attention_sparsity,lazy_mass,lazy_tokens,attention_map]"


@pytest.fixture(scope="module")
def probed(tiny_folder, tmp_path_factory) -> Path:
    return run(*arguments(tiny_folder, tmp_path_factory.mktemp("probed"), EVERY, "probe.attention_map.layers=[0,2]"))


def test_a_run_makes_a_record_per_sample_and_probe(probed):
    records = load_records(probed)
    assert len(records) == 3 * 5 and records["key"].is_unique
    assert not {"prediction", "r", "scores"} & set(records)
    for name, group in records.groupby("probe"):
        assert group["sample"].nunique() == 3
        assert (group["layers"].map(list) == ([[0, 2]] * 3 if name == "attention_map" else [[0, 1, 2]] * 3)).all()
        answered = name in ("lazy_tokens", "attention_map")
        assert (group["answer_tokens"].between(1, 4) if answered else group["answer_tokens"] == 0).all()
    heads = records[records["probe"] == "lazy_mass"]["values"]
    assert all(len(layer) == 6 for values in heads for layer in values)
    assert json.loads(records.set_index("probe").loc["key_similarity", "parameters"].iloc[0])["theta"] == 0.9


def test_a_run_leaves_figures_numbers_and_a_manifest(probed):
    assert probed.name.startswith("probe-niah-")
    for name in ("layers", "token_map", "attention_map"):
        assert (probed / f"{name}.png").stat().st_size > 5000
        assert (probed / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    assert len((probed / "layers.csv").read_text().splitlines()) == 1 + 3 * 3
    (manifest,) = (json.loads(path.read_text()) for path in (probed / "manifests").iterdir())
    assert manifest["status"] == "finished" and manifest["records"] == 15
    assert manifest["settings"] == ["key_similarity", "attention_sparsity", "lazy_mass", "lazy_tokens", "attention_map"]
    assert manifest["config"]["probe"]["key_similarity"]["theta"] == 0.9


def test_the_same_command_makes_nothing_again_and_a_changed_probe_its_own(probed, tiny_folder):
    before = (probed / "records.jsonl").read_bytes()
    same_again = arguments(tiny_folder, probed.parent, "probe=[lazy_mass,key_similarity]")
    assert run(*same_again) == probed
    assert (probed / "records.jsonl").read_bytes() == before
    run(*same_again, "probe.key_similarity.theta=0.5")
    records, _ = gather(probed)
    assert len(records) == 18
    assert (records["probe"].tail(3) == "key_similarity").all()


def test_questions_of_one_context_share_its_pass(monkeypatch, tiny_folder, tmp_path):
    calls = []
    real = evaluation.observe
    monkeypatch.setattr(evaluation, "observe", lambda *a: calls.append(len(a[1])) or real(*a))
    multi = "benchmark=niah_multi", "benchmark.seeds=1", "question=hidden", "probe=lazy_mass"
    folder = run(*arguments(tiny_folder, tmp_path, *multi))
    records = load_records(folder)
    assert len(records) == 3 and len(calls) == 1
    assert records["values"].map(json.dumps).nunique() == 1


def test_probes_and_methods_do_not_share_a_folder(probed, tiny_folder, tmp_path):
    other = run(*arguments(tiny_folder, tmp_path, "method=full"))
    assert other.name.rpartition("-")[2] != probed.name.rpartition("-")[2]


@pytest.mark.parametrize(
    "more, message",
    [
        (["probe=key_similarity", "probe.key_similarity.theta=2"], "theta=2 must be a number from -1 to 1"),
        (["probe=key_similarity", "probe.key_similarity.of=queries"], "unknown of 'queries'.*keys, values"),
        (["probe=attention_sparsity", "probe.attention_sparsity.mass=1.0"], "mass=1.0"),
        (["probe=attention_sparsity", "probe.attention_sparsity.window=0"], "window=0 must be an integer"),
        (["probe=lazy_mass", "probe.lazy_mass.variant=both"], "unknown variant 'both'"),
        (["probe=lazy_mass", "probe.lazy_mass.delta=1.5"], "delta=1.5"),
        (["probe=lazy_tokens", "probe.lazy_tokens.bins=0"], "bins=0 must be an integer"),
        (["probe=attention_map", "probe.attention_map.layers=[-1]"], "item 1 of layers=-1 must be an integer"),
        (["probe=attention_map", "probe.attention_map.layers=[]"], r"layers=\[\] must be a list of at least 1"),
        (["probe=attention_map", "probe.attention_map.answer=maybe"], "answer='maybe' must be true or false"),
        (["+probe.mine._target_=kvbench.methods.FullKV"], "'mine'.*not a subclass of kvbench.probes.Probe"),
    ],
)
def test_a_mistake_is_told_before_a_model_is_loaded(more, message):
    with pytest.raises(UserError, match=message) as error:
        build_probes(compose(*more)["probe"])
    assert "\n" not in str(error.value)


def test_a_layer_that_the_model_does_not_have_is_told(tiny_folder, tmp_path):
    chosen = arguments(tiny_folder, tmp_path, "probe=attention_map", "probe.attention_map.layers=[0,3]")
    with pytest.raises(UserError, match=r"layer 3 is none of the model's 3 layers.*takes 0 to 2"):
        run(*chosen)


def test_a_prompt_within_the_window_is_told():
    with pytest.raises(UserError, match="a prompt of 8 tokens has none before the window of 8"):
        probes.AttentionSparsity(window=8).observe(random_layer(n=8), 8)
    with pytest.raises(UserError, match="two tokens or more"):
        probes.SimilarPairs().observe(random_layer(n=1, window=1), 1)
    with pytest.raises(UserError, match="rotary"):
        probes.SimilarPairs().observe(random_layer(), 40)


PROBING = [f"simlayerkv_fig{n}" for n in (2, 4, 7)] + [f"spindlekv_fig{n}" for n in (3, 7, 8)]
PROBING += ["pyramidkv_fig2", "pooling_merge_fig5"]


@pytest.mark.parametrize("name", PROBING)
@pytest.mark.parametrize("small", [[], ["model=smollm2-135m"]])
def test_an_experiment_of_probes_is_made_for_its_model_and_for_the_small_one(name, small):
    cfg = load(name, *small)
    axes = {"layers": "heads", "token_map": "tokens", "attention_map": "map"}[Experiment.of(cfg).show]
    for observation in build_probes(cfg["probe"]):
        assert observation.probe.axes == axes
        assert max(observation.probe.layers or [0]) < (30 if small else 32)
        assert observation.probe.quantity


def test_a_changed_probe_is_told_in_the_caption():
    told = title(load("simlayerkv_fig4", "model=smollm2-135m", "probe.lazy_tokens.window=128"))
    assert "SimLayerKV Figure 4" in told and "smollm2-135m in place of llama3-8b" in told
    assert "lazy_tokens.window 128" in told
    assert "changed" not in title(load("simlayerkv_fig4"))
