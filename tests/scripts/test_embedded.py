"""scripts/embedded.py: what benchmark scripts read the embedded model with."""

import pytest

from scripts.embedded import needle_prompt


def test_a_prompt_has_about_as_many_tokens_as_are_asked_for_and_too_few_are_one_line(embedded):
    assert 400 <= len(needle_prompt(embedded, 600)) <= 600
    with pytest.raises(SystemExit, match=r"--length 128: .* must be an integer of at least 300"):
        needle_prompt(embedded, 128)
