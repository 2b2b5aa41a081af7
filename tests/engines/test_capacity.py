"""What servers say of themselves under load, and where more load gives no more."""

import pytest

from kvbench.engines.serving.capacity import gauges, knee

VLLM = """
# TYPE vllm:num_requests_running gauge
vllm:cache_config_info{block_size="16",cache_dtype="fp8",num_gpu_blocks="100"} 1.0
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:something_else 7
"""
LLAMA = "llamacpp:requests_processing 8\nllamacpp:requests_deferred 2\nllamacpp:n_decode_total 100\n"


def test_the_gauges_of_vllm_and_llama_server():
    assert gauges(VLLM) == {"running": 3, "waiting": 1, "cache_used": 0.25, "cache_tokens": 1600}
    assert gauges(LLAMA) == {"running": 8, "waiting": 2}
    assert gauges("<html>\nllamacpp:requests_processing ..\n") == {}


def test_engines_of_one_server_are_counted_together_and_the_fullest_says_how_full():
    second = VLLM.replace('engine="0"', 'engine="1"').replace('perc{engine="1"} 0.25', 'perc{engine="1"} 0.05')
    both = {"running": 6, "waiting": 2, "cache_used": 0.25, "cache_tokens": 1600}  # each line has the blocks of both
    assert gauges(VLLM + second) == gauges(second + VLLM) == both
    unknown = second.replace('num_gpu_blocks="100"', 'num_gpu_blocks="None"')
    assert "cache_tokens" not in gauges(VLLM + unknown)  # half of the room would be taken for all


def test_the_room_that_an_engine_states_stands_before_blocks_of_which_the_label_has_the_least_size():
    def line(engine: int, room: str) -> str:  # a model with attention and state space layers, as vLLM reports it
        labels = f'block_size="8",engine="{engine}",kv_cache_size_tokens="{room}",num_gpu_blocks="320"'
        return f"vllm:cache_config_info{{{labels}}} 1.0\n"

    assert gauges(line(0, "463459")) == {"cache_tokens": 463459}
    assert gauges(line(0, "463459") + line(1, "463459")) == {"cache_tokens": 926918}  # each line has its own engine's
    assert gauges(line(0, "None")) == {"cache_tokens": 2560}


@pytest.mark.parametrize(
    "loads, found",
    [
        ([], None),
        ([(1, 10)], None),
        ([(1, 10), (2, 20), (4, 40)], None),  # still grows
        ([(1, 10), (2, 20), (4, 21), (8, 21.5)], 2),
        ([(8, 21.5), (1, 10), (4, 21), (2, 20)], 2),
        ([(1, 10), (2, 9)], 1),
        ([(1, 10), (2, 10), (4, 40), (8, 41)], 4),  # a plateau below the knee is none
    ],
)
def test_the_knee_is_the_least_load_beyond_which_nothing_gives_a_tenth_more(loads, found):
    assert knee(loads) == found
