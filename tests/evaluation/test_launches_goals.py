"""What decoding, compression and prefill may launch and wait for on a GPU, per layer: counts, on fake devices.

FullKV's token is 43 kernels in a layer. results/benchmarks/launches.json has all counts, by bench_launches.py.
"""

import pytest

from kvbench.evaluation.decode import batched, decode
from kvbench.evaluation.settings import Setting
from kvbench.methods import H2O, Eviction, FullKV, Pyramid, StreamingLLM, WindowAttention
from kvbench.methods.facts import launches
from kvbench.methods.heads.head_scores import calibrations
from kvbench.ops.operator import LAUNCHES
from kvbench.prefill import FullPrefill, Needs
from tests.support import launch_counts as count
from tests.support.every_method import setting
from tests.support.fake_devices import FakeDevices
from tests.support.launches import Counts
from tests.support.representatives import KINDS, REPRESENTATIVES, by_kind

N, BATCH_N, RATIO = 160, 512, 0.3
TOKENS = 1  # counted, after two that may set things up
WINDOW, SUMS, BATCH = 40, 20, 1.15
# A method that searches for its ratio compresses a layer several times, as often as the CPU's rounding has it: each
# time it covers keys and values, by kernels of which a dispatch counter sees LAUNCHES.
COVERS = 2 * LAUNCHES["greedy_covers"]
# Without those that read a calibration file, which is of one number of layers: their own tests count.
COUNTED = [name for name in REPRESENTATIVES if not list(calibrations(setting(name).method))]
DECODED = [name for name in KINDS if not list(calibrations(setting(name).method))]

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize("name", DECODED)
def test_a_decoded_token_launches_little_more_than_fullkvs_and_waits_for_nothing(name):
    one = setting(name, ratio=RATIO)
    token, _ = count.decoding_per_layer(N, lambda layers: [(one.method, one.budget_at(N, layers))], name, TOKENS)
    goals = launches(one.method)
    assert token.waits == token.uploads == goals.decode_waits, token.names
    assert token.kernels <= goals.decode, f"{name} needs other `launches` (kvbench/methods/facts.py): {token.names}"


@pytest.mark.parametrize("stop", [frozenset({-1}), frozenset()])
def test_decoding_waits_once_in_eight_tokens_and_uploads_nothing(stop):
    """For its tokens, whether they were close and whether logits were finite; a row that ends costs an upload."""
    model = count.counted_model(2)
    state = count.state_of(model, N, FullPrefill(), Needs())

    def counts(steps: int) -> Counts:
        with FakeDevices():
            caches = [FullKV().compress(state, N) for _ in range(3)]
            logits = state.logits.expand(3, -1)
        return count.counts_of(lambda: decode(model, batched(caches), logits, steps, stop))

    steps = counts(8 + 16) - counts(8)
    assert (steps.waits, steps.uploads) == (2, 0), steps.names


@pytest.mark.parametrize("name", by_kind(COUNTED))
def test_compression_waits_at_most_once_a_layer(name):
    one = setting(name, ratio=RATIO)
    counts = count.per_layer(lambda model: count.compression_counts(one, model, N), name)
    times = max(counts.names["greedy_covers"] / COVERS, 1)
    assert counts.waits <= launches(one.method).compress_waits * times, (
        f"{name} needs other `launches` (kvbench/methods/facts.py): {counts.names}"
    )


def test_twelve_settings_as_a_batch_launch_what_one_does():
    methods = [StreamingLLM(), H2O(), Eviction(), Eviction(Pyramid(), WindowAttention(window=8))]
    every = [(method, int(ratio * BATCH_N)) for method in methods for ratio in (0.1, 0.2, 0.4)]
    batch, _ = count.decoding_per_layer(BATCH_N, lambda _: every, tokens=TOKENS)
    full, _ = count.decoding_per_layer(BATCH_N, lambda _: [(FullKV(), BATCH_N)], tokens=TOKENS)
    assert batch.waits == 0 and batch.kernels <= BATCH * full.kernels, batch.names


@pytest.mark.parametrize("n", [64, 512])
def test_column_sums_add_a_fixed_number_of_kernels_to_a_prefill(n):
    plain, sums = (
        count.per_layer(lambda model, needs=needs: count.prefill_counts(model, n, needs))
        for needs in (Needs(), Needs(column_sums=True))
    )
    assert (sums - plain).kernels <= SUMS and (sums - plain).waits == 0


def test_window_scores_are_few_kernels():
    counts = count.per_layer(lambda model: count.window_counts(model, N))
    assert counts.kernels <= WINDOW and counts.waits == 0


def test_scores_that_settings_share_count_in_every_compression_and_whatever_was_counted_before():
    """SnapKV's are attention of the last queries, which a layer computes once for all settings."""
    model, one = count.counted_model(2), Setting("snapkv", Eviction(scoring=WindowAttention(window=32)), "", RATIO)
    n = N + 1  # of which no other test has counted
    scores, compression, again = (
        counts.names
        for counts in (
            count.window_counts(model, n),
            count.compression_counts(one, model, n),
            count.window_counts(model, n),
        )
    )
    assert scores == again and scores <= compression
