"""Help and documentation of keys: each has its comment in conf/config.yaml, and the values of its type."""

import runpy

import pytest

from kvbench.configuration.conf import choices
from kvbench.configuration.configuration import SECTIONS, every_key
from kvbench.configuration.describe import keys, values
from kvbench.runner.help import help_text
from kvbench.runner.help_sections import GROUPS
from kvbench.runner.help_sections import SECTIONS as HELP
from tests.support.paths import ROOT


def test_every_key_is_described():
    assert {key.name for key in keys()} == {*every_key()} - {*SECTIONS}
    assert all(key.about and key.values and key.default for key in keys())


def test_the_values_of_a_type_in_words():
    found = {key.name: key.values for key in keys()}
    assert found["question"] == "`visible` or `hidden`"
    assert found["kernels"] == "`auto`, `torch` or `triton`"
    assert found["distance"] == "`auto`, `true` or `false`"
    assert found["limit"] == "integer of at least 1 or `null`"
    assert found["method"] == "name or list of names" and found["model"] == "name"
    with pytest.raises(TypeError):
        values(object)


def test_the_help_of_a_key_says_what_its_comment_says():
    assert {*HELP} & {*every_key()} <= {*GROUPS}  # whose help lists the choices
    for key in keys():
        if key.name not in (*GROUPS, *choices("method")):
            text = " ".join(help_text(key.name).replace("\\[", "[").split())
            assert key.about in text and f"{key.name}={key.default}" in text
    assert help_text("wandb").count("values:") == 3


def test_the_documentation_is_made_from_the_keys():
    make = runpy.run_path(str(ROOT / "scripts" / "maintenance" / "make_configuration_doc.py"))
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == make["document"](), (
        "run python -m scripts.maintenance.make_configuration_doc"
    )
