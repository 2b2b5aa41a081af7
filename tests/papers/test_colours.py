"""A method has one colour, whatever stands beside it."""

from collections import defaultdict
from itertools import chain, combinations, product

import pytest
from matplotlib.colors import to_rgb

from kvbench.configuration.conf import choices, file_of, more_configuration, stated, titled
from kvbench.errors import UserError
from kvbench.papers.colours import COLOURS, looks
from tests.support.figure_records import colour

FRONTIER = (
    "streaming_llm h2o snapkv pyramidkv adakv tova knorm expected_attention kvzip kivi turboquant_2 turboquant_4 "
    "fp8_token"
).split()


def plain(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())


def lab(hexed: str) -> tuple[float, float, float]:
    """CIE L*a*b*, in which distances are those that eyes see."""
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(hexed))
    xyz = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047, 0.2126 * r + 0.7152 * g + 0.0722 * b
    xyz = *xyz, (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def test_preset_label_and_title_have_one_colour():
    for name in set(choices("method")) - {"full"}:
        assert colour(titled(name)) == colour(name) == colour(f"{name} 0.2"), name
    assert colour("snapkv_paper") == colour("SnapKV") == colour("snapkv") != colour("pyramidkv")
    assert colour("full") is None and colour("FullKV") is None
    assert colour("my_own_method") == colour("my_own_method 0.5")


def test_every_preset_states_a_colour_or_begins_with_the_title_of_a_method_that_does():
    titles = stated("method", "title")
    with_colour = {name for name, colour in stated("method", "colour").items() if colour}
    begun = tuple(plain(word) for name in with_colour for word in (name, titles[name] or name))
    for name in set(choices("method")) - {"full"}:
        assert plain(titled(name)).startswith(begun), file_of("method", name)


def test_no_two_that_can_stand_together_look_alike():
    """Presets and engines in pairs, and all of them in one picture. For a pair of colours one pair of names stands."""
    names = [*choices("method"), *choices("engine")]
    alike = defaultdict(list)
    for name in names:
        alike[colour(name)].append(name)
    of_two_colours = combinations((group[0] for group in alike.values()), 2)
    of_one_colour = chain.from_iterable(combinations(group, 2) for group in alike.values())
    for count, pair in product((10, 11), [*of_two_colours, *of_one_colour]):  # hatches, marks
        assert len({look[:2] for look in looks(pair, count).values()}) == 2, pair
    for count in (10, 11):
        assert len({look[:2] for look in looks(names, count).values()}) == len(names)
    methods = [name for name, colour in stated("method", "colour").items() if colour]
    alone = {name: looks([name], 11)[name] for name in methods}
    assert len(set(alone.values())) == len(methods)  # and in pictures of their own


def test_marks_alone_distinguish_as_many_as_there_are():
    eleven = looks(FRONTIER[:11], 11)
    assert sorted(look.mark for look in eleven.values()) == [*range(11)]
    assert looks(reversed(FRONTIER), 11) == looks(FRONTIER, 11)
    whole = looks(["full", *FRONTIER], 11)
    assert all(looks(["full", name], 11)[name][:2] == whole[name][:2] for name in FRONTIER[:5])  # in every picture
    assert list(looks(["h2o", "snapkv", "h2o"], 11)) == ["h2o", "snapkv"]
    many = looks([f"snapkv 0.{i}" for i in range(300)], 10)
    assert len({look[:2] for look in many.values()}) == 240  # all pairs, and the others begin again


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
