"""What experiments cost, from their configurations."""

import json

import pytest

from kvbench.benchmarks.longbench.tasks import TASKS
from kvbench.benchmarks.planned import PromptSize
from kvbench.configuration import configured
from kvbench.evaluation.settings import build_settings
from kvbench.models.flops import forward_flops, token_bytes
from kvbench.papers.command_line import configurations
from kvbench.papers.cost import Cost, cost, cost_text, estimate_text
from kvbench.papers.gpu import GPU, H100
from kvbench.papers.gpu_estimate import Shape, estimate
from kvbench.papers.recorded_costs import costs, gib_text, hours_text, short_cost
from kvbench.runner.help import help_text
from tests.support.experiments import NAMES
from tests.support.paths import ROOT

pytestmark = pytest.mark.heavy

TOGETHER, PREFILL = "all prompts together have at most", "and settings that share a prefill read them once."


@pytest.mark.parametrize(
    "overrides, said",
    [
        (
            ["pyramidkv_table1", "model=llama3-8b"],
            f"33,750 records (9 settings × 3,750 samples); {TOGETHER} 29,812,500 tokens, {PREFILL}",
        ),
        (
            ["pyramidkv_fig5"],
            f"5,680 records (4 settings × 710 samples × 2 models); {TOGETHER} 6,390,000 tokens, {PREFILL}",
        ),
        # two grids of different sizes
        (["spindlekv_table4"], f"4,530 records; {TOGETHER} 16,155,000 tokens, {PREFILL}"),
        # two of each task, probes in place of methods
        (
            ["simlayerkv_fig7", "limit=2"],
            f"12 records (1 setting × 12 samples); {TOGETHER} 90,000 tokens, {PREFILL}",
        ),
        # the longest prompts of each task, since it is not known which are the first
        (
            ["simlayerkv_table3", "limit=2"],
            f"78 records (3 settings × 26 samples); {TOGETHER} 851,968 tokens, {PREFILL}",
        ),
        (["pyramidkv_table6"], "32 records (2 settings × 16 samples)."),
        (["kvpress_ruler4k", "model=qwen3-8b", "method=full"], "6,500 records (1 setting × 6,500 samples)."),
    ],
)
def test_records_and_prompt_tokens_follow_from_the_configuration(overrides, said):
    name, *more = overrides
    text = cost_text(configurations([f"+experiment={name}", *more]))
    assert text.partition(" Estimated for ")[0] == f"Cost: {said}"


def test_the_cost_of_data_of_ones_own_is_not_known():
    assert cost(configurations(["+experiment=pyramidkv_table2", "benchmark.data_dir=/data"])) is None


def test_longbench_has_4750_samples():
    assert sum(task.samples for task in TASKS.values()) == 4750


# --- GPU hours and memory, by hand

# 1,000 parameters; 2 layers; 4 query heads of 8 numbers over 1 KV head: 2 · 2 · 8 · 2 = 64 bytes for each token
SHAPE = Shape(1000, 2, 4, 1, 8)
# exact rates: 1,000 operations and 1,000 bytes per second
SLOW = GPU("abacus", 2000, 0.5, 4000, 0.25)
FLOPS = 2 * 1000 * 100 + 2 * (2 * 100) * 4 * 8 * 100  # of a prompt of 100 tokens: weights and causal attention


def settings(*names, **sizes):
    methods = configured([f"method=[{','.join(names)}]"]).method
    return build_settings({name: methods[name] for name in names}, sizes.get("ratio"), sizes.get("budget"))


def test_flops_and_bytes_follow_from_the_shape():
    assert SHAPE.flops(100) == FLOPS == forward_flops(1000, [None, None], 4, 8, 100)
    # a window of 10: at most 10 keys for each query
    assert forward_flops(1000, [10, None], 4, 8, 100) == 2 * 1000 * 100 + 2 * (20 + 100) * 4 * 8 * 100
    assert SHAPE.token_bytes == token_bytes(2, 1, 8, 2) == 64 and SHAPE.weight_bytes == 2000


def test_one_setting_reads_the_weights_and_its_cache_for_every_token():
    found = estimate(SHAPE, settings("full"), [PromptSize(100, 10)] * 3, "auto", SLOW)
    read = 10 * (2000 + 100 * 64 + 10 * 64 / 2)  # of ten tokens, half of which are there on average
    assert found == (pytest.approx(3 * (FLOPS + read) / 1000), 2000 + 100 * 64 + 10 * 64)


@pytest.mark.parametrize(("batch", "passes", "at_once"), [("auto", 1, 2), ("all", 1, 2), ("2", 1, 2), ("1", 2, 1)])
def test_settings_share_a_prefill_and_the_weights_of_a_batch(batch, passes, at_once):
    found = estimate(SHAPE, settings("full", "snapkv", budget=50), [PromptSize(100, 10)], batch, SLOW)
    read = 10 * (passes * 2000 + (100 + 50) * 64 + 2 * 10 * 64 / 2)
    # one by one, FullKV's beside the prompt that the next setting needs; a batch is without the prompt
    held = (100 + (100 if at_once == 1 else 50)) * 64 + at_once * 10 * 64
    assert found == (pytest.approx((FLOPS + read) / 1000), 2000 + held)


@pytest.mark.parametrize("n", [100, 200])
def test_query_heads_that_select_for_themselves_hold_a_copy_each(n):
    """With 50 of 200 tokens, the copies of four query heads are as many as the prompt's tokens."""
    cut, whole = (
        estimate(SHAPE, settings("snapkv", "snapkv_paper", budget=budget), [PromptSize(n, 10)], "auto", SLOW)
        for budget in (50, n)
    )
    stored = (50 + 4 * 50) * 64
    assert cut.most_bytes == 2000 + max(n * 64 + stored, stored + 2 * 10 * 64)
    assert whole.most_bytes == 2000 + 2 * (n + 10) * 64  # where all tokens stay, nothing is copied
    assert cut.seconds - whole.seconds == pytest.approx(10 * (stored - 2 * n * 64) / 1000)


def test_settings_that_decode_alone_have_a_pass_each_beside_the_prompt():
    some = settings("kivi", "snapkv", "spindle", budget=50)
    found, one = (estimate(SHAPE, some, [PromptSize(100, 10)], batch, SLOW) for batch in ("auto", "all"))
    read = 10 * (3 * 2000 + (100 + 50 + 50) * 64 + 3 * 10 * 64 / 2)
    assert found == (pytest.approx((FLOPS + read) / 1000), 2000 + 2 * 100 * 64 + 10 * 64)
    assert found.seconds - one.seconds == pytest.approx(2 * 10 * 2000 / 1000)


def test_estimated_bytes_are_those_that_were_counted_but_for_what_is_left_out():
    counted = json.loads((ROOT / "results/benchmarks/peak_bytes.json").read_text())
    shape = Shape.from_model(
        *(getattr(configured(["model=llama3-8b"]).model, name) for name in ("shape", "parameters"))
    )
    every = settings("full", "snapkv", "pyramidkv", "spindle", "kivi", ratio=[0.1, 0.2, 0.4])
    assert [one.label for one in every] == counted["settings"]
    for n, found in counted["prompts"].items():
        estimated = estimate(shape, every, [PromptSize(int(n), 64)], "auto").most_bytes
        assert 0.95 < estimated / found["peak_bytes"] < 1


def test_a_speed_run_repeats_each_setting_alone_for_every_sequence():
    found = estimate(SHAPE, settings("full", "snapkv", ratio=0.5), [PromptSize(100, 10, False, 3, 4)], "auto", SLOW)
    read = 10 * (2 * 2000 + 3 * (100 + 50) * 64 + 2 * 3 * 10 * 64 / 2)
    assert found == (pytest.approx(4 * (2 * FLOPS + read) / 1000), 2000 + 100 * 64 + 3 * 100 * 64 + 3 * 10 * 64)


@pytest.mark.parametrize("size", [PromptSize(None, 10), PromptSize(100, 10, batch=None)])
def test_without_a_length_or_with_the_largest_batch_there_is_no_estimate(size):
    assert estimate(SHAPE, settings("full"), [size], "auto", SLOW) is None
    assert Shape.from_model(None, 5) is None
    assert Shape.from_model({"head_dim": 8}, 5) is None


def test_a_prompt_of_8k_tokens_on_llama_3_8b_takes_what_its_numbers_say():
    model = configured(["model=llama3-8b"]).model
    shape = Shape.from_model(model.shape, model.parameters)
    flops = 2 * 8_030_261_248 * 8192 + 2 * 32 * 32 * 128 * 8192**2
    assert shape.flops(8192) == flops
    assert H100.seconds(flops, 0) == pytest.approx(0.3771, rel=1e-3)
    assert shape.token_bytes * 8192 == 2**30  # 1 GiB


# Width, inner width and whether the embedding is tied, as the models' config.json have them.
WIDTHS = {
    "llama2-7b-chat": (4096, 11008, False),
    "llama3-8b": (4096, 14336, False),
    "llama3-70b": (8192, 28672, False),
    "llama3.2-1b": (2048, 8192, True),
    "mistral-7b-v0.2": (4096, 14336, False),
    "mistral-7b-v0.3": (4096, 14336, False),
    "mistral-nemo": (5120, 14336, False),
    "smollm2-135m": (576, 1536, True),
    "yi-1.5-9b": (4096, 11008, False),
}


@pytest.mark.parametrize("name", WIDTHS)
def test_a_presets_parameters_follow_from_its_widths(name):
    model = configured([f"model={name}"]).model
    layers, heads, kv_heads, size, vocabulary = model.shape.values()
    width, inner, tied = WIDTHS[name]
    layer = 2 * width * (heads + kv_heads) * size + 3 * width * inner + 2 * width
    assert model.parameters == (1 if tied else 2) * vocabulary * width + layers * layer + width


# --- what is printed


def test_the_file_has_no_other_experiment():
    assert sorted(costs()) == sorted(NAMES)


def test_help_has_the_cost_of_each_experiment_and_the_assumptions():
    said = " ".join(help_text("experiment").split())
    assert all(short_cost(name) in said for name in NAMES)
    assert "on an H100, with prefill at 40 % of 989 TFLOP/s and decoding at 60 % of 3.35 TB/s" in said
    assert short_cost("mine") == ""


def test_an_estimate_names_what_it_assumes_and_what_it_counts():
    assert estimate_text(Cost([(1, 1)], None, 2.345, 19.31)) == (
        "Estimated for answers of full length: 2.3 GPU hours on an H100, "
        "with prefill at 40 % of 989 TFLOP/s and decoding at 60 % of 3.35 TB/s; "
        "19 GiB in bfloat16 for weights, the longest prompt and the caches held with it or decoding together."
    )
    assert estimate_text(Cost([(1, 1)], None, None, None)) == ""


def test_hours_and_memory_have_as_many_digits_as_they_deserve():
    assert [hours_text(x) for x in (0.002, 0.0543, 0.54, 5.43, 54.3, 5432)] == [
        *("under 0.01 GPU hours", "0.05 GPU hours", "0.5 GPU hours", "5.4 GPU hours", "54 GPU hours"),
        "5,400 GPU hours",
    ]
    assert [gib_text(x) for x in (0.31, 9.94, 17.2)] == ["0.3 GiB", "9.9 GiB", "17 GiB"]
