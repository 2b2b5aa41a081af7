"""What experiments cost, from their configurations."""

import pytest

from kvbench.papers.command_line import configurations
from kvbench.papers.cost import LONGBENCH, cost

PREFILL = "before the chat template, read once by settings that share a prefill."


@pytest.mark.parametrize(
    "overrides, said",
    [
        (
            ["pyramidkv_table1", "model=llama3-8b"],
            f"33,750 records (9 settings × 3,750 samples); prompts of up to 29,812,500 tokens {PREFILL}",
        ),
        (
            ["pyramidkv_fig5"],
            f"5,680 records (4 settings × 710 samples × 2 models); prompts of up to 6,390,000 tokens {PREFILL}",
        ),
        # two grids of different sizes
        (["spindlekv_table4"], f"4,530 records; prompts of up to 16,155,000 tokens {PREFILL}"),
        # two of each task, probes in place of methods
        (
            ["simlayerkv_fig7", "limit=2"],
            f"12 records (1 setting × 12 samples); prompts of up to 90,000 tokens {PREFILL}",
        ),
        # the longest prompts of each task, since it is not known which are the first
        (
            ["simlayerkv_table3", "limit=2"],
            f"78 records (3 settings × 26 samples); prompts of up to 851,968 tokens {PREFILL}",
        ),
        (["pyramidkv_table6"], "32 records (2 settings × 16 samples)."),
        (["kvpress_ruler4k", "model=qwen3-8b", "method=full"], "6,500 records (1 setting × 6,500 samples)."),
    ],
)
def test_records_and_prompt_tokens_follow_from_the_configuration(overrides, said):
    name, *more = overrides
    assert cost(configurations([f"+experiment={name}", *more])) == f"Cost: {said}"


def test_the_cost_of_data_of_ones_own_is_not_known():
    assert cost(configurations(["+experiment=pyramidkv_table2", "benchmark.data_dir=/data"])) == ""


def test_longbench_has_4750_samples():
    assert sum(LONGBENCH.values()) == 4750
