"""KVzip: scores of a second pass choose the tokens; what is around the context stays."""

import pytest
import torch

from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.evaluation.settings import build_settings
from kvbench.methods import AdaKV, CriticalKV, Eviction, FullKV, KVzip
from kvbench.prefill import ContextFrame, FullPrefill
from tests.support.answers import agree
from tests.support.config import method_configs
from tests.support.tiny import LAYOUTS, prompt, random_state, tiny_model

N = 80
UNIFORM = Eviction(scoring=KVzip(chunk=24))


def passed(method, frame: ContextFrame, layout: str = "gqa") -> SharedPass:
    return SharedPass(tiny_model(layout=layout), prompt(N), FullPrefill(), method.needs, lambda: frame)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_head_keeps_what_is_around_the_context_and_the_best_scored_of_it(layout):
    frame = ContextFrame(prefix=9, end=75)
    for layer in passed(UNIFORM, frame, layout).state.layers:
        (observed,) = layer.reconstruction.values()
        for head, kept in enumerate(UNIFORM.select(layer, layer.index, 3, 30).indices.tolist()):
            assert len(kept) == 30 and set(range(9)) | set(range(75, N)) <= set(kept)
            dropped = sorted(set(range(N)) - set(kept))
            assert observed.scores[head, kept].min() >= observed.scores[head, dropped].max()


@pytest.mark.parametrize("method", [UNIFORM, Eviction(scoring=CriticalKV(UNIFORM.scoring)), "heads"], ids=str)
def test_a_budget_smaller_than_the_prefix_keeps_the_prefix(method):
    method = Eviction(scoring=KVzip(), heads=AdaKV()) if method == "heads" else method
    source = passed(method, ContextFrame(prefix=30, end=75))
    compressed = source.compress(method, 12)
    assert [cache.kept.r1 * N for cache in compressed.caches] == pytest.approx([35] * 3)
    for layer in source.state.layers:
        mask = method.select(layer, layer.index, 3, 12).mask(layer)
        assert mask[..., :30].all() and mask[..., 75:].all() and not mask[..., 30:75].any()


def test_a_ratio_of_one_decodes_fullkvs_tokens():
    source = passed(UNIFORM, ContextFrame())
    outcomes = [source.compress(method, N) for method in (UNIFORM, FullKV())]
    zipped, full = (generate(tiny_model(), x.caches, x.logits, 20, frozenset()) for x in outcomes)
    assert agree(zipped, full.tokens)


@pytest.mark.parametrize(
    "text, message",
    [
        (None, "No such file"),
        ("{", "Expecting"),
        ('{"first": "a"}', "others"),
        ('{"first": "a", "others": 3}', "texts"),
    ],
)
def test_a_file_without_two_requests_is_one_line(tmp_path, text, message):
    file = tmp_path / "requests.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UserError, match=f"requests_file=.*{message}") as error:
        KVzip(requests_file=str(file))
    assert "\n" not in str(error.value)


def test_the_requests_are_part_of_a_records_key(tmp_path):
    file, keys = tmp_path / "requests.json", []
    config = method_configs("kvzip_uniform")["kvzip_uniform"]
    config["scoring"]["requests_file"] = str(file)
    for first in ("a", "b"):
        file.write_text(f'{{"first": "{first}", "others": "x"}}')
        keys.append(build_settings({"kvzip_uniform": config}, 0.3, None)[0].key)
    assert keys[0] != keys[1] and str(file) not in keys[0]


def test_scores_are_not_smoothed_or_written():
    state = random_state(1, n=30)
    scoring = KVzip()
    before = scoring.votes(state.layers[0]).clone()
    Eviction(scoring=scoring).compress(state, 10)
    assert torch.equal(scoring.votes(state.layers[0]), before)
