"""The tokens of an engine's model beside those of the tokenizer."""

import pytest

from kvbench.engines.same_model import check_tokens
from kvbench.errors import UserError


@pytest.fixture
def texts(embedded) -> list[str]:
    return embedded.tokenizer.convert_ids_to_tokens(list(range(len(embedded.tokenizer))))


def test_tokens_of_the_tokenizer_pass_with_others_behind_them(embedded, texts):
    check_tokens("x", [*texts, "[PAD49152]"], embedded)
    check_tokens("x", texts[:-100], embedded)


def test_what_converters_write_in_their_own_form_passes(embedded, texts):
    added = max(embedded.tokenizer.added_tokens_decoder)
    check_tokens("x", [*["another"] * (added + 1), *texts[added + 1 :]], embedded)
    few = len(texts) // 200
    check_tokens("x", [*texts[:-few], *["another"] * few], embedded)


def test_another_tokenizer_of_the_same_size_is_refused(embedded, texts):
    first = max(embedded.tokenizer.added_tokens_decoder) + 1
    with pytest.raises(UserError, match=rf"x: the engine's model has the token {first} .*not the same model"):
        check_tokens("x", [*texts[:first], *reversed(texts[first:])], embedded)
