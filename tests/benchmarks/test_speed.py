"""Prompts of the speed benchmark."""

from kvbench.benchmarks import Speed


def test_prompts_have_their_length_to_the_token_and_begin_as_the_tokenizer_does(embedded):
    benchmark = Speed([50, 90], [1], [8])
    assert [len(benchmark.ids(embedded.tokenizer, length)) for length in benchmark.lengths] == [50, 90]
    assert benchmark.longest == 98

    class WithStart:
        def __call__(self, text, add_special_tokens=True):
            ids = embedded.tokenizer(text, add_special_tokens=False)["input_ids"]
            return {"input_ids": [7, *ids] if add_special_tokens else ids}

    ids = benchmark.ids(WithStart(), 50)
    assert len(ids) == 50 and ids[0] == 7
    assert ids[1:] == benchmark.ids(embedded.tokenizer, 50)[:49]
