"""How much time is left, what is running, and which setting takes most of it."""

import io
from statistics import mean, stdev
from threading import Event
from types import SimpleNamespace

import pytest

from kvbench.benchmarks import Sample, Speed
from kvbench.evaluation.settings import Setting
from kvbench.methods import FullKV
from kvbench.runner import estimate as module
from kvbench.runner import progress
from kvbench.runner.estimate import Estimate, costs, prompt_flops
from kvbench.runner.finished_work import Cost, Finished
from kvbench.runner.time_spent import TimeSpent, dominant
from kvbench.utils.console import SafeConsole
from kvbench.utils.text import duration
from tests.support.runs import arguments, run
from tests.support.tiny import tiny_model


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def finish(estimate, clock, sample, seconds, prefill=None, records=2):
    """All records of a sample, `seconds` after the last one."""
    clock.now += seconds
    made = [estimate.made({"sample": sample, "prefill_seconds": prefill}) for _ in range(records)]
    assert made == [False] * (records - 1) + [True]


def estimate(clock, *samples, rounds=1):
    predicted = {name: Cost(prefill, rest, 2) for name, prefill, rest in samples}
    return Estimate(predicted, dict.fromkeys(predicted, 100), True, clock, rounds=rounds)


def test_before_the_first_sample_it_is_what_was_predicted_and_runs_down(clock):
    one = estimate(clock, ("a", 2, 4), ("b", 2, 4))
    assert one.left() == 12
    clock.now = 5
    assert one.left() == 7
    clock.now = 50  # longer than predicted: the sample at work is nearly over, the others are ahead
    assert one.left() == 6


def test_a_finished_sample_corrects_prefill_and_the_rest_by_themselves(clock):
    one = estimate(clock, ("a", 2, 4), ("b", 20, 4))
    finish(one, clock, "a", 11, prefill=3.0)  # prefill 1.5 times, the rest twice as long as predicted
    assert one.left() == pytest.approx(20 * 1.5 + 4 * 2)


def test_a_prefill_that_several_questions_share_counts_once(clock):
    one = estimate(clock, ("a", 2, 1), ("b", 0, 1), ("c", 2, 1))
    finish(one, clock, "a", 6, prefill=4.0)
    finish(one, clock, "b", 2, prefill=4.0)
    assert one.left() == pytest.approx(2 * 2 + 1 * 2)


def test_records_without_a_prefill_time_correct_the_whole(clock):
    one = estimate(clock, ("a", 0, 4), ("b", 0, 8))
    assert one.measuring
    finish(one, clock, "a", 12)
    assert not one.measuring and one.left() == 24


def test_records_have_one_prefills_time_of_a_speed_runs_rounds(clock):
    one = estimate(clock, ("a", 10, 4), ("b", 80, 4), rounds=5)
    finish(one, clock, "a", 28, prefill=4.0)  # five prefills of 4 s: twice the predicted work, as the rest
    assert one.left() == pytest.approx(2 * 84)
    finish(estimate(clock, ("a", 10, 4), rounds=5), clock, "a", 15, prefill=4.0)  # the median of unequal rounds


def test_the_time_left_is_that_of_the_pass_where_a_command_has_several(clock):
    one = Estimate({"a": Cost(0, 10, 2), "b": Cost(0, 10, 2)}, {}, True, clock, "pass 2")
    assert progress.left(one) == "measuring the time left of pass 2"
    finish(one, clock, "a", 10)
    assert progress.left(one) == "6 s to 17 s left of pass 2"


def test_it_is_a_range_until_finished_samples_agree(clock):
    one = estimate(clock, *((name, 0, 10) for name in "abcdefghij"))
    assert progress.left(one) == "measuring the time left"  # what is predicted is too far from the truth at times
    finish(one, clock, "a", 40)
    assert one.span() == pytest.approx((0.6 * 360, 1.7 * 360))
    for name in "bcdefgh":  # as long as the first
        finish(one, clock, name, 40)
    assert progress.left(one) == "about 80 s left"
    finish(one, clock, "i", 400)  # not at all
    low, high = one.span()
    assert low < one.left() < high and high > 2 * one.left()


def test_what_a_process_does_once_does_not_count_from_the_second_sample_on(clock):
    one = estimate(clock, *((name, 2, 4) for name in "abcd"))
    finish(one, clock, "a", 60, prefill=40.0)  # kernels are compiled
    assert one.left() == 180
    finish(one, clock, "b", 6, prefill=2.0)
    assert one.left() == pytest.approx(12)
    shared = estimate(clock, ("a", 2, 1), ("b", 0, 1), ("c", 2, 1))
    finish(shared, clock, "a", 5, prefill=4.0)
    finish(shared, clock, "b", 3, prefill=4.0)
    assert shared.left() == pytest.approx(2 * 2 + 1 * 2)  # the first has the only prefill, and counts


class Watched(Cost):
    """A cost that counts how often its parts are read."""

    reads = 0

    def __getattribute__(self, name):
        Watched.reads += name in ("prefill", "rest")
        return super().__getattribute__(name)


def reads_of(clock, samples):
    """How often predicted costs are read by a run of so many samples that shows its time after each."""
    predicted = {str(number): Watched(1 + number % 3, 2, 1) for number in range(samples)}
    one = Estimate(predicted, {}, True, clock)
    Watched.reads = 0
    for name in predicted:
        finish(one, clock, name, 6, prefill=1 / (1 + clock.now), records=1)
        progress.left(one)
    return Watched.reads


def test_the_work_of_an_estimate_does_not_grow_with_the_samples_behind_and_ahead(clock):
    """Each of 4,000 samples was counted again whenever one was finished or the bar was drawn."""
    assert reads_of(clock, 200) == pytest.approx(2 * reads_of(clock, 100), rel=0.05)


def test_finished_samples_have_the_spread_of_their_ratios():
    taken = [(2, 3.0), (1, 5.0), (0, 4.0), (4, 2.0), (3, 7.5)]
    finished = Finished()
    for predicted, measured in taken:
        finished.add(Cost(predicted, 0, 1), Cost(0, measured, 1))
    ratios = [measured / predicted for predicted, measured in taken if predicted]
    assert (finished.samples, finished.ratios) == (5, 4)
    assert finished.variation == pytest.approx(stdev(ratios) / mean(ratios))


def test_the_parts_of_a_run_are_shares_of_its_time():
    spent = TimeSpent()
    for name in "abcd":
        spent.add(of(name, 5.0, decode=40.0, batch=4, prefill=20.0))
    assert spent.line(100.0) == "2 min: prefill 20%, compression 20%, decoding 40%, all else 20%"
    assert spent.line(59.0) == "" and TimeSpent().line(100.0) == ""


def test_a_batch_decodes_until_its_last_sequence_ends():
    """On a GPU, where a batch has many settings, of which few give long answers, all else seemed to take 69 %."""
    spent = TimeSpent()
    for question, seconds in ((0.5, 9.5), (0.5, 59.5), (0.5, 3.0), (0.25, 19.75)):
        spent.add(of("a", 0.0, decode=seconds, batch=3, prefill=0.0) | {"question_seconds": question})
    assert spent.line(100.0) == "2 min: prefill 0%, compression 0%, decoding 80%, all else 20%"


def test_a_second_pass_of_several_settings_counts_once():
    """As KVzip's at several ratios: each record's compression includes the whole pass."""
    spent = TimeSpent()
    for name in "abcd":
        spent.add(of(name, 32.0, decode=0.0, prefill=20.0) | {"second_pass_seconds": 30.0})
    assert spent.line(100.0) == "2 min: prefill 20%, compression 38%, decoding 0%, all else 42%"


def test_records_of_other_samples_change_nothing_and_at_the_end_nothing_is_left(clock):
    one = estimate(clock, ("a", 1, 1))
    assert not one.made({"sample": "of another shard"})
    finish(one, clock, "a", 3)
    assert one.left() == 0 and progress.left(one) == ""


def prediction(batch="auto", question="visible", settings=4, benchmark=None, made=()):
    """The costs of two questions about one context of 256 tokens."""
    asked = made if made else [Sample(name, f"context {name}", (), 10, question=name) for name in ("a", "b")]
    one = SimpleNamespace(
        loaded=SimpleNamespace(model=tiny_model()), benchmark=benchmark, batch=batch, question=question
    )
    missing = {sample.id: [Setting("full", FullKV(), "")] * settings for sample in asked}
    return costs(one, asked, missing, {sample.id: 256 for sample in asked})


def test_costs_follow_prompts_settings_and_batches():
    assert prediction() == {name: Cost(1.0, pytest.approx(0.6), 4) for name in "ab"}
    assert prediction(batch="1")["a"].rest == pytest.approx(2.0)
    hidden = prediction(question="hidden")
    assert (hidden["a"].prefill, hidden["b"].prefill) == (1.0, 0.0)
    assert prediction(settings=0) == {}


def test_a_speed_run_measures_each_setting_by_itself_and_again():
    speed = Speed(lengths=[256], batches=[10], new_tokens=[10], repeats=4, warmup=1)
    made = [Sample("256-10-10", "", (), 10, meta={"batch": 10})]
    assert prediction(benchmark=speed, made=made)["256-10-10"] == Cost(20.0, pytest.approx(20 * 1.5), 4)


def test_attention_makes_long_prompts_cost_more_than_their_length():
    model = tiny_model()
    assert prompt_flops(model)(20_000) > 20 * prompt_flops(model)(1_000)


def of(setting, compress, decode=1.0, batch=1, prefill=1.0):
    return {
        **{"setting": setting, "prefill_seconds": prefill, "compress_seconds": compress},
        **{"question_seconds": 0.0, "decode_seconds": decode, "decode_batch": batch},
    }


def test_a_setting_that_takes_most_of_the_time_is_found_with_its_share():
    even = [of(name, 1.0, batch=4) for name in "abcd"]
    assert dominant(even) is None
    slow = [*even, of("slow", 94.0, decode=0.0, prefill=1.0)]
    name, share = dominant(slow)
    assert name == "slow" and share == pytest.approx(94.2 / 100)
    assert dominant(slow[3:]) is None  # of two settings one always takes more


def test_settings_that_share_a_second_pass_share_its_time():
    alone = [of(name, 1.0) for name in "abc"]
    several = [of(name, 41.0) | {"second_pass_seconds": 40.0} for name in ("d 0.1", "d 0.2", "d 0.3", "d 0.4")]
    assert dominant([*alone, *several]) is None
    name, share = dominant([*alone, several[0]])
    assert name == "d 0.1" and share == pytest.approx((41 + 1 + 0.25) / (44 + 4 + 1))


def test_a_pass_of_its_own_is_a_settings_own_time():
    name, _ = dominant([*(of(name, 0.1, decode=0.1) for name in "abcd"), of("second pass", 0.1, 0.1, prefill=50.0)])
    assert name == "second pass"


def test_a_warning_names_what_is_left_with_and_without_it_once(clock, monkeypatch):
    told = io.StringIO()
    monkeypatch.setattr("kvbench.utils.console.err", SafeConsole(file=told, width=400, markup=False))
    one = estimate(clock, ("a", 0, 1000))
    slow = [*(of(name, 1.0, decode=0.0) for name in "abcd"), of("slow", 15.0, decode=0.0, prefill=None)]
    for _ in range(2):
        progress.warn_of_dominant(slow, one)
    assert told.getvalue() == "'slow' takes 75% of the time: about 17 min are left, and about 4 min without it\n"


def test_without_a_terminal_there_is_a_line_now_and_then(monkeypatch):
    stream, said = io.StringIO(), Event()
    console = SafeConsole(file=stream, width=400, markup=False)
    monkeypatch.setattr(progress, "err", console)
    monkeypatch.setattr("kvbench.utils.console.err", console)
    monkeypatch.setattr(progress, "EVERY", 0.001)

    def line():
        said.set()
        return "3 of 4 records"

    with progress.lines(line):
        assert said.wait(60)
    assert set(stream.getvalue().splitlines()) == {"3 of 4 records"}
    monkeypatch.setattr(progress, "err", SafeConsole(file=stream, force_terminal=True))
    with progress.lines(lambda: pytest.fail("a terminal has the bar")):
        pass


@pytest.mark.heavy
def test_a_long_run_is_announced_before_it_starts(tiny_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "WORTH", 0)
    run(*arguments(tiny_folder, tmp_path, "method=[full,snapkv]", "ratio=0.5", "limit=2"))
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "to make from" in line]
    assert line.startswith("4 records to make from 2 prompts of about ")
    assert line.endswith("; the time is measured with the first")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 s"),
        (89, "89 s"),
        (100, "2 min"),
        (5000, "83 min"),
        (7800, "2 h 10 min"),
        (7200, "2 h"),
        (4e5, "5 days"),
    ],
)
def test_durations_are_read_at_a_glance(seconds, text):
    assert duration(seconds) == text
