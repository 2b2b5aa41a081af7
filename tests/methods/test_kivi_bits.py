"""KIVI with bits of their own for keys and values and for every layer."""

import json

import pytest
import torch
import yaml

from kvbench.errors import UserError
from kvbench.evaluation.settings import build_settings
from kvbench.methods import Eviction, FullKV, Kivi, MiniCache, WindowAttention
from kvbench.prefill import Needs, prefill
from tests.support.config import method_configs
from tests.support.tiny import prompt, random_state, tiny_model


@pytest.fixture
def layers_file(tmp_path):
    """A file of the bits of each layer, written by the test that calls it."""

    def write(layers: list[tuple[int, int]], name: str = "bits.yaml") -> str:
        named = {i: {"nbits_key": keys, "nbits_value": values} for i, (keys, values) in enumerate(layers)}
        (tmp_path / name).write_text(yaml.safe_dump(named), encoding="utf-8")
        return str(tmp_path / name)

    return write


def bits_of(caches) -> list[tuple[int, int]]:
    return [(cache.k.quantiser.bits, cache.v.quantiser.bits) for cache in caches]


def test_keys_and_values_have_their_own_bits_and_bits_is_for_those_without():
    state = random_state(2, n=40)
    for storage, expected in (
        (Kivi(4, 8, 8, key_bits=8, value_bits=2), (8, 2)),
        (Kivi(4, 8, 8, value_bits=2), (4, 2)),
        (Kivi(2, 8, 8, key_bits=4), (4, 2)),
    ):
        assert bits_of(FullKV(storage).compress(state, 40)) == [expected] * 2


def test_each_side_is_what_it_is_alone_and_so_are_its_bytes():
    state = random_state(1, n=41)
    mixed, four, two = (
        FullKV(Kivi(group=8, residual=8, key_bits=keys, value_bits=values)).compress(state, 41)[0]
        for keys, values in ((4, 2), (4, 4), (2, 2))
    )
    assert torch.equal(mixed.k.read(), four.k.read()) and torch.equal(mixed.v.read(), two.v.read())
    assert mixed.kept.r3 == pytest.approx((four.k.share + two.v.share) / 2)
    assert mixed.nbytes == sum(x.nbytes for x in (*four.k.tensors(), *two.v.tensors()))


def test_a_file_gives_each_layer_its_bits_under_any_selection(layers_file):
    layers = [(8, 8), (4, 2), (2, 2)]
    storage = Kivi(group=8, residual=8, layers_file=layers_file(layers))
    state = random_state(3, n=60)
    assert bits_of(FullKV(storage).compress(state, 60)) == layers
    assert bits_of(Eviction(scoring=WindowAttention(8), storage=storage).compress(state, 30)) == layers


def test_layers_of_a_models_prefill_know_their_place(layers_file):
    layers = [(8, 8), (4, 2), (2, 4)]
    storage = Kivi(group=8, residual=8, layers_file=layers_file(layers))
    state = prefill(tiny_model(), prompt(30), Needs())
    assert bits_of(FullKV(storage).compress(state, 30)) == layers


def test_a_file_for_another_model_is_refused_in_a_line(layers_file):
    method = FullKV(Kivi(group=8, residual=8, layers_file=layers_file([(4, 4)] * 3)))
    with pytest.raises(UserError, match="has the bits of 3 layers, but this model has 4") as error:
        method.compress(random_state(4, n=20), 20)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1: {nbits_key: 4, nbits_value: 4}", "must be a mapping of the layers 0, 1"),
        ("[4, 4]", "must be a mapping of the layers"),
        ("", "must be a mapping of the layers"),
        ("0: {nbits_key: 3, nbits_value: 4}", "layer 0 needs nbits_key and nbits_value, each 2, 4 or 8"),
        ("0: {nbits_key: 4}", "layer 0 needs nbits_key and nbits_value"),
        ("0: 4", "layer 0 needs nbits_key and nbits_value"),
        ("0: {nbits_key: 4", "cannot be read"),
    ],
)
def test_a_wrong_file_is_one_line(text, said, tmp_path):
    path = tmp_path / "bits.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=said) as error:
        Kivi(layers_file=str(path))
    assert "\n" not in str(error.value) and str(path) in str(error.value)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"layers_file": "/nowhere.yaml"}, "layers_file=/nowhere.yaml cannot be read"),
        ({"key_bits": 3}, "key_bits=3 must be 2, 4 or 8"),
        ({"group": 2, "residual": 2, "value_bits": 2}, "group=2 codes of 2 bits do not fill whole bytes"),
    ],
)
def test_wrong_values_are_named(wrong, said):
    with pytest.raises(UserError, match=said):
        Kivi(**wrong)


def test_a_file_excludes_other_bits_and_layers_merged_in_pairs(layers_file):
    path = layers_file([(4, 4)])
    with pytest.raises(UserError, match="key_bits=4 and value_bits=None must both be null"):
        Kivi(layers_file=path, key_bits=4)
    with pytest.raises(UserError, match="MiniCache stores two layers together"):
        MiniCache(storage=Kivi(layers_file=path))


def test_a_records_key_depends_on_what_the_file_says_and_not_on_its_place(layers_file):
    def key(path: str) -> str:
        bits = ("key_bits=null", "value_bits=null", f"layers_file={path}")
        overrides = tuple(f"method.kivi_k4v2.storage.{bit}" for bit in bits)
        (setting,) = build_settings(method_configs("kivi_k4v2", overrides=overrides), None, None)
        return setting.key

    first, same, other = layers_file([(4, 2)], "a"), layers_file([(4, 2)], "b"), layers_file([(2, 2)], "c")
    assert key(first) == key(same) != key(other)
    assert first not in key(first)


def test_kivis_keys_of_records_are_those_of_earlier_versions():
    (setting,) = build_settings(method_configs("kivi"), None, None)
    assert json.loads(setting.parameters)["storage"] == {
        "_target_": "kvbench.methods.Kivi",
        "bits": 4,
        "group": 32,
        "residual": 128,
    }
