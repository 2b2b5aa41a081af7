"""Whole runs of probes: shared passes, records, figures, mistakes."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from kvbench import probes
from kvbench.benchmarks.base import Sample
from kvbench.errors import UserError
from kvbench.evaluation import probes as evaluation
from kvbench.evaluation.probes import checked_values, greedy_answer, observe, rounded
from kvbench.evaluation.prompts import Prompt
from kvbench.evaluation.record import Run
from kvbench.models import LoadedModel, ModelSpec
from kvbench.ops.column_sums import TILE
from kvbench.papers.captions import title
from kvbench.papers.experiment import load
from kvbench.prefill import full as prefill
from kvbench.probes.base import ALL, Observation, build_probes
from kvbench.records import gather
from kvbench.records import load as load_records
from kvbench.runner.request import build_request
from tests.methods.test_greedy_cover import LargestFloat
from tests.support.probes import PROBING, N, seen
from tests.support.runs import compose, reported, run
from tests.support.sliding import WINDOW, sliding_model
from tests.support.tiny import prompt, random_layer, tiny_model
from tests.support.unrendered import rendering

pytestmark = pytest.mark.heavy


def test_chosen_layers_are_the_models_own():
    every, some = seen(probes.AttentionMap(bins=4)), seen(probes.AttentionMap(layers=[2, 0], bins=4))
    assert_close(some, [every[2], every[0]])


def test_probes_share_one_pass_and_hold_one_layer(monkeypatch):
    """Every layer's state is gone before the next one's is made."""
    alive, passes = [], []
    real = prefill.CaptureLayer.observe

    def watch(layer, *args):
        alive.append(sum(state() is not None for state in held))
        state = real(layer, *args)
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
    eager, model = tiny_model(implementation="eager").double(), tiny_model().double()
    ids = prompt(30)
    out = eager.generate(
        ids[None], max_new_tokens=6, do_sample=False, return_dict_in_generate=True, output_attentions=True
    )
    sample = Sample("s", "", (), 6)
    asked = Prompt(sample, ids[: 30 - question], ids[30 - question :])
    loaded = LoadedModel(ModelSpec("tiny", 512, hub_id="none"), model, None, "")
    loaded.stop_tokens = frozenset()
    answer = greedy_answer(Run("", "", loaded, None, ()), asked)
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


def arguments(folder: Path, out: Path, *more: str) -> list[str]:
    return [
        *(f"model.path={folder}", "model.shape=null", "model.max_length=4096", f"output_dir={out}"),
        *("benchmark.lengths=[320]", "benchmark.depths=[0,50,100]", "benchmark.max_new_tokens=4", *more),
    ]


EVERY = "probe=[key_similarity,attention_sparsity,lazy_mass,lazy_tokens,attention_map]"


@pytest.fixture(scope="module")
def probed(tiny_folder, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("probed")
    with rendering():
        return reported(*arguments(tiny_folder, folder, EVERY, "probe.attention_map.layers=[0,2]"))


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


@pytest.mark.heavy
def test_the_same_command_makes_nothing_again_and_a_changed_probe_its_own(probed, tiny_folder, tmp_path):
    folder = Path(shutil.copytree(probed, tmp_path / probed.name))
    before = (folder / "records.jsonl").read_bytes()
    same_again = arguments(tiny_folder, tmp_path, "probe=[lazy_mass,key_similarity]")
    assert run(*same_again) == folder
    assert (folder / "records.jsonl").read_bytes() == before
    run(*same_again, "probe.key_similarity.theta=0.5")
    records, _ = gather(folder)
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
        build_probes(compose(*more).probe)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "more, message",
    [
        ("benchmark=speed", "^benchmark=speed measures methods, and probe= observes prompts in their place"),
        ("memory=stream", "^memory=stream frees layers that a method has compressed, and probe= compresses none"),
        ("distance=true", "^distance=true: probe= measures no answer's distance from FullKV"),
    ],
)
def test_what_probes_would_leave_undone_is_refused_before_a_model_is_loaded(more, message):
    with pytest.raises(UserError, match=message):
        build_request(compose("probe=lazy_mass", more))


def test_a_layer_that_the_model_does_not_have_is_told(tiny_folder, tmp_path):
    chosen = arguments(tiny_folder, tmp_path, "probe=attention_map", "probe.attention_map.layers=[0,3]")
    with pytest.raises(UserError, match=r"layer 3 is not one of the model's 3 layers.*takes 0 to 2"):
        run(*chosen)


def test_a_prompt_within_the_window_is_told():
    with pytest.raises(UserError, match="a prompt of 8 tokens has none before the window of 8"):
        probes.AttentionSparsity(window=8).observe(random_layer(n=8), 8)
    with pytest.raises(UserError, match="at least two tokens"):
        probes.SimilarPairs().observe(random_layer(n=1, window=1), 1)
    with pytest.raises(UserError, match="rotary"):
        probes.SimilarPairs().observe(random_layer(), 40)


def test_a_prompt_beyond_the_window_of_every_layer_is_told():
    """It made a record of no layer, whose figure ended in a traceback."""
    attention = Observation("map", probes.AttentionMap(), "{}")
    with pytest.raises(UserError, match=rf"'map' has no layers to read: .* which {WINDOW + 1} tokens fill"):
        observe(sliding_model("mistral"), prompt(WINDOW + 1), WINDOW + 1, [attention])


@pytest.mark.parametrize("name", PROBING)
@pytest.mark.parametrize("small", [[], ["model=smollm2-135m"]])
def test_an_experiment_of_probes_is_made_for_its_model_and_for_the_small_one(name, small):
    cfg = load(name, *small)
    axes = {"layers": "heads", "token_map": "tokens", "attention_map": "map"}[cfg.experiment.show]
    for observation in build_probes(cfg.probe):
        assert observation.probe.axes == axes
        assert max(observation.probe.layers or [0]) < (30 if small else 32)
        assert observation.probe.quantity


def test_a_changed_probe_is_told_in_the_caption():
    told = title(load("simlayerkv_fig4", "model=smollm2-135m", "probe.lazy_tokens.window=128"))
    assert "SimLayerKV Figure 4" in told and "smollm2-135m in place of llama3-8b" in told
    assert "lazy_tokens.window 128" in told
    assert "changed" not in title(load("simlayerkv_fig4"))


@pytest.mark.parametrize(("values", "said"), [(None, "None"), (1.5, "1.5"), (torch.tensor(2.0), "a number, 2")])
def test_a_probe_without_a_tensor_of_values_is_one_line(values, said):
    probe = SimpleNamespace(axes="heads")
    with pytest.raises(
        UserError, match=f"^SimpleNamespace.observe returned {said}: it must be a tensor with axes 'heads'"
    ):
        checked_values(probe, values)


class NoValues(probes.AttentionMap):
    def observe(self, layer, prompt):
        return None


def test_a_pass_of_a_probe_without_values_is_one_line():
    with pytest.raises(UserError, match=r"^NoValues.observe returned None"):
        observe(tiny_model(), prompt(N), N, [Observation("p", NoValues(), "{}")])
