"""A method has one colour, whatever stands beside it."""

from itertools import combinations

import pytest
from matplotlib.colors import to_rgb

from kvbench.config import choices, file_of, more_configuration, titled
from kvbench.errors import UserError
from kvbench.papers.colours import COLOURS, colour, places, slot

FRONTIER = (
    "streaming_llm h2o snapkv pyramidkv adakv tova knorm expected_attention kvzip kivi turboquant_2 turboquant_4 "
    "fp8_token"
).split()


def lab(hexed: str) -> tuple[float, float, float]:
    """CIE L*a*b*, in which distances are those that eyes see."""
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(hexed))
    xyz = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047, 0.2126 * r + 0.7152 * g + 0.0722 * b
    xyz = *xyz, (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def test_preset_label_and_title_have_one_colour():
    for name in choices("method"):
        assert slot(titled(name)) == slot(name), name
        file = file_of("method", name)
        stated = name == "full" or slot(f"{name} 0.2") == slot(name) < len(COLOURS)
        assert stated, f"{file} states no colour, and its title does not begin with that of a method that does"
    assert slot("snapkv_paper") == slot("SnapKV") == slot("snapkv") != slot("pyramidkv")
    assert slot("full") is slot("FullKV") is None and colour("FullKV") == "#000000"
    assert slot("my_own_method") == slot("MyOwnMethod 0.5") != slot("another")


def test_a_file_of_ones_own_states_a_colour_of_the_palette(tmp_path):
    (tmp_path / "method").mkdir()
    mine = tmp_path / "method" / "my_method.yaml"
    with more_configuration(tmp_path):
        mine.write_text('title: "Mine"\ncolour: teal\n')
        assert colour("my_method 0.5") == colour("Mine (variant)") == "#00a5a5"
        other = tmp_path / "method" / "other_method.yaml"
        other.write_text("colour: aubergine\n")
        with pytest.raises(UserError, match=r"other_method.yaml: colour='aubergine' is none of blue, vermilion, "):
            colour("my_method")


def test_colours_can_be_told_apart():
    distances = {
        (a, b): sum((p - q) ** 2 for p, q in zip(lab(a), lab(b), strict=True)) ** 0.5
        for a, b in combinations(COLOURS, 2)
    }
    assert min(distances.values()) > 15, min(distances, key=distances.get)
    assert all(35 <= lab(one)[0] <= 80 for one in COLOURS)  # seen on white and on black
    compared = [colour(name) for name in FRONTIER]
    assert len({*compared}) == 13


def test_places_differ_and_do_not_move_without_need():
    assert places(["snapkv", "h2o"], 8) == places(["h2o", "snapkv"], 8)
    many = places([f"m{i}" for i in range(16)], 8)
    assert sorted(many.values()) == sorted([*range(8), *range(8)])
    assert set(list(many.values())[:8]) == set(range(8))
    assert places(["a", "b", "a"], 8).keys() == {"a", "b"}
