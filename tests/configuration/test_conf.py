"""Titles of methods: what tables, figures and pages show in place of names, and no part of a record's key."""

from collections import Counter

from kvbench.configuration.conf import choices, composed, flat, more_configuration, titled
from kvbench.evaluation.settings import build_settings
from tests.support.config import NAMES, method_configs
from tests.support.titles import untitled


def test_no_two_methods_have_one_title():
    assert [title for title, times in Counter(map(titled, choices("method"))).items() if times > 1] == []


def test_a_label_has_the_title_in_place_of_the_name_and_the_rest_as_it_is():
    assert titled("full") == "FullKV"
    assert titled("snapkv 0.2 (scoring.window=8)") == "SnapKV 0.2 (scoring.window=8)"
    assert untitled("PyramidKV (paper) 0.405") == "pyramidkv_paper 0.405"
    for label in ("AdaKVPress(KnormPress) 0.2", "MyMethod 0.2", "", "[/x]", "../../config 1"):
        assert titled(label) == label


def test_a_file_has_no_title_from_the_file_that_it_begins_with(tmp_path):
    (tmp_path / "method").mkdir()
    child = tmp_path / "method" / "snapkv_mine.yaml"
    child.write_text('# @package method.snapkv_mine\ndefaults: [snapkv@_here_, _self_]\nabout: "mine"\n')
    with more_configuration(tmp_path):
        assert titled("snapkv_mine 0.2") == "snapkv_mine 0.2"


def test_a_copied_file_whose_title_stayed_has_its_name(tmp_path):
    (tmp_path / "method").mkdir()
    for name, title in {"snapkv_copy": "SnapKV", "snapkv_new": "SnapKV (new)"}.items():
        file = tmp_path / "method" / f"{name}.yaml"
        file.write_text(f"# @package method.{name}\ndefaults: [snapkv@_here_, _self_]\ntitle: {title}\n")
    with more_configuration(tmp_path):
        titles = [titled(name) for name in ("snapkv 0.2", "snapkv_copy 0.2", "snapkv_new 0.2")]
    assert titles == ["SnapKV 0.2", "snapkv_copy 0.2", "SnapKV (new) 0.2"]


def test_titles_are_no_parameters_of_methods():
    settings = build_settings(method_configs(*NAMES), 0.5, None)
    assert not any('"title"' in setting.parameters or '"about"' in setting.parameters for setting in settings)


def test_a_description_of_a_part_is_no_parameter_of_a_method(tmp_path):
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "mine.yaml").write_text("about: 'Of my own'\n_target_: kvbench.methods.Dense\n")
    with more_configuration(tmp_path):
        nodes = [composed(["method=snapkv", f"storage@method.snapkv.storage={name}"]) for name in ("mine", "dense")]
    described, plain = (build_settings(node["method"], 0.5, None)[0].parameters for node in nodes)
    assert described == plain


def test_methods_of_the_demo_share_their_window_and_pooling():
    """What several methods of one table have is the same in all of them, so that it does not decide their order."""
    methods = composed([])["method"]
    parts = {name: flat(method) for name, method in methods.items() if isinstance(method, dict)}
    shared = ("scoring.window", "scoring.kernel", "scoring.pooling", "granularity", "group_reduce", "storage.layout")
    for key in shared:
        values = {name: part[key] for name, part in parts.items() if key in part}
        assert len(values) >= 2 and len(set(values.values())) == 1, (key, values)
    assert parts["pyramidkv"]["scoring.window"] == 8
