"""What a GGUF file states and transformers leaves out."""

from types import SimpleNamespace

import pytest

from kvbench.errors import UserError
from kvbench.models.gguf_fields import check_window


@pytest.mark.parametrize(
    ("window", "length", "configured"),
    [(None, 4096, None), (0, 4096, None), (262144, 131072, None), (512, 4096, 512), (512, None, 512)],
    ids=["none", "written as 0", "beyond every text", "read", "without a length"],
)
def test_a_window_that_the_model_has_or_cannot_reach_passes(window, length, configured):
    fields = {"attention.sliding_window": window, "context_length": length}
    check_window(fields, SimpleNamespace(sliding_window=configured))


@pytest.mark.parametrize("config", [SimpleNamespace(), SimpleNamespace(sliding_window=None)])
def test_a_window_that_the_model_lacks_is_refused(config):
    fields = {"attention.sliding_window": 2047, "context_length": 4096}
    with pytest.raises(UserError, match=r"its attention\.sliding_window is 2047, which transformers does not read"):
        check_window(fields, config)
