"""KVzip by heads: heads with the best scores of a file keep the context, the others what lies around it."""

import json

import pytest
import torch

from kvbench.errors import UserError
from kvbench.evaluation.cache_checks import check_bytes, check_lengths
from kvbench.evaluation.decode import generate
from kvbench.evaluation.prefill_passes import SharedPass, StreamedPass
from kvbench.methods import AroundContext, Eviction, FullKV, KNorm, Pyramid, WholeHeads, WindowAttention
from kvbench.methods.heads.head_scores import read_head_scores
from kvbench.prefill import ContextFrame, FullPrefill
from tests.support.config import method
from tests.support.tiny import prompt, random_state, tiny_model

N, LAYERS = 80, 3
FRAME = ContextFrame(prefix=9, end=75)  # 66 tokens of context, 14 around it
SCORES = [[0.9, 0.2], [0.5, 0.8], [0.5, 0.1]]


@pytest.fixture
def scores_file(tmp_path):
    def written(scores=SCORES, name: str = "scores.json", over: str = "kv_heads") -> str:
        contents = {"kind": "head scores", "over": over, "scores": scores, "model": "", "about": ""}
        (tmp_path / name).write_text(json.dumps(contents))
        return str(tmp_path / name)

    return written


def state():
    made = random_state(LAYERS, n=N)
    for layer in made.layers:
        layer.context = FRAME.span(N)
    return made


def whole(chosen: Eviction, budget: float) -> list[tuple[int, int]]:
    """The (layer, head) pairs that keep every token; the others keep what is around the context."""
    found = []
    for layer in state().layers:
        mask = chosen.select(layer, layer.index, LAYERS, budget).mask(layer)[:, 0]
        assert mask[:, :9].all() and mask[:, 75:].all()
        assert all(row[9:75].all() or not row[9:75].any() for row in mask)
        found += [(layer.index, head) for head, row in enumerate(mask) if row.all()]
    return found


def by_heads(file: str, threshold: str = "exact") -> Eviction:
    return Eviction(scoring=AroundContext(), heads=WholeHeads(file, threshold))


@pytest.mark.parametrize(
    "budget, expected",
    [
        (3, []),  # less than what stays: exceeded
        (24, []),
        (25, [(0, 0)]),  # 14 + 66 / 6
        (57, [(0, 0), (1, 1), (1, 0)]),  # the lower layer of two equal scores
        (58, [(0, 0), (1, 1), (1, 0), (2, 0)]),
        (79, [(0, 0), (1, 1), (1, 0), (2, 0), (0, 1)]),
    ],
)
def test_as_many_heads_as_the_budget_holds_the_best_first(scores_file, budget, expected):
    assert whole(by_heads(scores_file()), budget) == sorted(expected)


@pytest.mark.parametrize(
    "ratio, expected",
    [(0.1, []), (0.17, [(0, 0)]), (0.5, [(0, 0), (1, 1)]), (0.68, [(0, 0), (1, 1), (1, 0), (2, 0)])],
)
def test_the_released_threshold_keeps_the_heads_above_the_score_at_the_cut(scores_file, ratio, expected):
    """Of 6 · 66 scores that at int(396 · ratio) - 1: with ratio 0.5 the 198th, one of the two equal ones."""
    chosen = by_heads(scores_file(), "official")
    assert whole(chosen, ratio * N) == sorted(expected) and chosen.takes_fractions


def test_a_ratio_of_one_is_fullkv(scores_file):
    for threshold in ("exact", "official"):
        made = by_heads(scores_file(), threshold).compress(state(), N)
        for mine, full in zip(made, FullKV().compress(state(), N), strict=True):
            assert all(torch.equal(a, b) for a, b in zip(mine.tensors(), full.tensors(), strict=True))


@pytest.mark.parametrize("frame", [FRAME, ContextFrame()])
def test_the_context_is_where_the_prompt_says_and_both_modes_decode_the_same(scores_file, frame):
    model, chosen = tiny_model(num_layers=LAYERS), by_heads(scores_file())
    shared = SharedPass(model, prompt(N), FullPrefill(), chosen.needs, lambda: frame)
    streamed = StreamedPass(model, prompt(N), FullPrefill(), lambda: frame)
    one, other = (source.compress(chosen, 50) for source in (shared, streamed))
    around = N - (frame.end or N) + (frame.prefix or 4)
    assert sorted({size for cache in one.caches for size in cache.kept.per_head}) == [around, N]
    texts = [generate(model, x.caches, x.logits, 20, frozenset()).tokens for x in (one, other)]
    assert texts[0] == texts[1] and other.peak_bytes < one.peak_bytes


def test_the_other_heads_keep_what_another_scoring_protects(scores_file):
    chosen = Eviction(scoring=WindowAttention(8, 5), heads=WholeHeads(scores_file()))
    sizes = [chosen.select(x, x.index, LAYERS, 40).chosen.sum(1).tolist() for x in state().layers]
    assert sizes == [[80, 8], [8, 80], [8, 8]]


def test_a_layer_may_keep_no_token_under_a_scoring_that_protects_none(scores_file):
    """`kvbench check` called its 0 bytes a mistake."""
    model, chosen = tiny_model(num_layers=LAYERS), Eviction(scoring=KNorm(), heads=WholeHeads(scores_file()))
    made = SharedPass(model, prompt(N), FullPrefill(), chosen.needs).compress(chosen, 30)
    check_bytes(made.caches)
    assert [cache.kept.per_head for cache in made.caches] == [(N, 0), (0, N), (0, 0)]
    output = generate(model, made.caches, made.logits, 20, frozenset())
    check_lengths(made.caches, N + 19)
    assert output.not_finite is None


def test_released_tensors_and_scores_of_query_heads_are_read(scores_file, tmp_path):
    torch.save(torch.tensor(SCORES).half(), tmp_path / "model-data-0.pt")
    released = read_head_scores(str(tmp_path / "model-data-0.pt"))
    assert released.over == "kv_heads" and released.scores[2] == pytest.approx(SCORES[2], abs=1e-3)
    assert whole(by_heads(released.path), 57) == whole(by_heads(scores_file()), 57)
    groups = [[x for score in row for x in (score - 0.05, score, score + 0.05)] for row in SCORES]
    assert whole(by_heads(scores_file(groups, "query.json", "query_heads")), 44) == [(0, 0), (1, 1)]
    (tmp_path / "broken.pt").write_bytes(b"no tensor")
    for damaged in ("broken.pt", "none.pt"):
        with pytest.raises(UserError, match="not a readable calibration file") as error:
            WholeHeads(str(tmp_path / damaged))
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "contents",
    [torch.tensor(SCORES)[None], torch.tensor(SCORES[0]), torch.tensor(0.5).expand(2**10, 2**10), SCORES],
    ids=["three dimensions", "one", "a number a million times", "a list"],
)
def test_a_tensor_of_another_form_is_refused_before_its_numbers_are_made(contents, tmp_path):
    torch.save(contents, tmp_path / "scores.pt")
    with pytest.raises(UserError, match=r"no tensor \[layers, KV heads\] of at most 65,536 numbers$"):
        read_head_scores(str(tmp_path / "scores.pt"))


def test_what_has_no_meaning_is_refused(scores_file):
    with pytest.raises(UserError, match="needs scores_file=FILE, which `kvbench calibrate FILE scores=kvzip"):
        by_heads(None).compress(state(), 40)
    with pytest.raises(UserError, match="WholeHeads divides the budget between layers, too"):
        Eviction(Pyramid(), WindowAttention(8), heads=WholeHeads(scores_file()))
    with pytest.raises(UserError, match="it was made for another model"):
        by_heads(scores_file(SCORES[:2])).compress(state(), 40)


def test_the_presets_are_the_two_thresholds():
    assert method("kvzip_head").heads.threshold == "exact"
    paper = method("kvzip_head_paper")
    assert paper.heads.threshold == "official" and paper.scoring == AroundContext(4)
