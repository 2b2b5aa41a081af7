"""Faults of samples are found before the first is run."""

import json
from dataclasses import replace

import pytest

from kvbench.benchmarks import PassKey, Sample, Turn
from kvbench.errors import UserError
from kvbench.evaluation.check_samples import check_samples, check_turns, check_windows
from kvbench.evaluation.record import Run
from kvbench.evaluation.settings import Setting
from kvbench.methods import Eviction, FullKV
from kvbench.models import ModelSpec, load
from kvbench.records.store import keys_in
from tests.support.fixtures import saved_tiny
from tests.support.runs import run


def test_two_samples_with_one_id_are_refused(embedded):
    """Records are kept by it: the second would have the first one's record, and none of its own."""
    benchmark = PassKey(lengths=[300], depths=[0, 100])
    first, second = benchmark.samples(embedded.tokenizer)
    check_samples(embedded, benchmark, [first, second], "visible")
    with pytest.raises(UserError) as error:
        check_samples(embedded, benchmark, [first, second, replace(second, id=first.id)], "visible")
    assert str(error.value) == f"2 samples of passkey have the id {first.id!r}: each needs one of its own"


@pytest.mark.parametrize("name", [3, None, ["a"]])
def test_an_id_that_is_no_text_is_refused(name, embedded):
    """The schema of records refuses it only after the first answer."""
    benchmark = PassKey(lengths=[300], depths=[0])
    (sample,) = benchmark.samples(embedded.tokenizer)
    with pytest.raises(UserError) as error:
        check_samples(embedded, benchmark, [replace(sample, id=name)], "visible")
    assert str(error.value) == f"a sample of passkey has the id {name!r}: it must be a text"


def test_an_own_answer_has_the_limit_of_its_own_sample():
    """One answer is decoded for both: by the default of a Turn it would have one token, whatever its sample allows."""
    first = Sample("c:1", "When?", ("x",), 6, own_answers=True)
    second = replace(first, id="c:2", turns=(Turn("Where?", max_new_tokens=2),))
    with pytest.raises(ValueError, match="the model's own answer before a turn needs its max_new_tokens"):
        replace(second, turns=(Turn("Where?"),))
    with pytest.raises(UserError) as error:
        check_turns([first, second], [], False)
    assert str(error.value) == (
        "sample 'c:1' has max_new_tokens=6, but sample 'c:2', which continues from its answer, has a turn with "
        "max_new_tokens=2: give both the same"
    )
    check_turns([second], [], False)
    check_turns([replace(sample, own_answers=False) for sample in (first, second)], [], False)


@pytest.fixture(scope="module")
def windowed(embedded, tmp_path_factory):
    """The folder of a model whose layers all have a window of 400 tokens."""
    config = saved_tiny(embedded, tmp_path_factory.mktemp("windowed"), family="mistral") / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"sliding_window": 400}))
    return config.parent


def test_texts_beyond_the_window_of_every_layer_are_refused_before_the_first_is_read(windowed, tmp_path):
    """The run ended at the first of them, after hours perhaps."""
    given = (
        "model=hf",
        f"model.path={windowed}",
        f"output_dir={tmp_path}",
        "method=[full,snapkv]",
        "ratio=0.5",
        "benchmark=niah",
    )
    longer = (*given, "benchmark.lengths=[320,800]", "benchmark.depths=[50]", "benchmark.max_new_tokens=2")
    with pytest.raises(
        UserError, match=r"snapkv 0.5: sample 'number-800-.* every layer of .* has a sliding window of 400"
    ):
        run(*longer)
    assert not [*tmp_path.iterdir()]
    assert len(keys_in(run(*longer, "method=full"))) == 2


def test_answers_count_as_long_as_they_may_be_unless_they_are_there(windowed, tmp_path, monkeypatch):
    settings = [Setting("full", FullKV(), ""), Setting("snapkv", Eviction(), "", ratio=0.5)]
    loaded = load(ModelSpec(name="windowed", path=str(windowed)))
    made = Run("run", "identity", loaded, PassKey(lengths=[300], depths=[0]), settings)
    (sample,) = made.benchmark.samples(loaded.tokenizer)
    n = len(loaded.encode(sample.prompt, sample.chat, sample.prefix))
    check_windows(made, [replace(sample, max_new_tokens=401 - n)], tmp_path)
    for longer, timed in ((sample, False), (replace(sample, meta={"length": n}), True)):
        longer = replace(longer, max_new_tokens=402 - n)
        with pytest.raises(UserError, match=f"{n} tokens to compress and up to {402 - n} after them"):
            check_windows(made, [longer], tmp_path, timed)
    monkeypatch.setattr("kvbench.evaluation.check_samples.keys_in", lambda _: {made.key(sample, settings[1])})
    check_windows(made, [longer], tmp_path)
