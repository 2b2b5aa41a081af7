"""scripts/maintenance/make_screenshots.py: what the pictures show, and how small they are."""

import io
import random

import pytest
from PIL import Image

from scripts.maintenance import make_screenshots
from scripts.maintenance.make_screenshots import LARGEST, of_page, reduced, telling_sample
from tests.support.page import grid_run, hidden_run
from tests.support.paths import ROOT

pytestmark = pytest.mark.heavy

NAMES = ("page-desktop", "page-phone", "page-dark", "report-sample", "site-desktop", "site-phone")


def png(picture: Image.Image) -> bytes:
    made = io.BytesIO()
    picture.save(made, "PNG")
    return made.getvalue()


def test_a_picture_keeps_its_size_and_its_few_colours():
    whole = Image.new("RGB", (300, 200), "#ffffff")
    whole.paste("#0072b2", (10, 10, 20, 20))
    made = Image.open(io.BytesIO(reduced(png(whole)))).convert("RGB")
    assert made.size == (300, 200) and made.getpixel((15, 15)) == (0, 0x72, 0xB2)


def test_a_picture_of_many_colours_loses_some(monkeypatch):
    monkeypatch.setattr(make_screenshots, "LARGEST", 30_000)
    noise = Image.frombytes("RGB", (120, 100), random.Random(0).randbytes(120 * 100 * 3))
    assert len(png(noise)) > 30_000 >= len(reduced(png(noise)))


def test_the_sample_shown_is_one_whose_settings_differ(tmp_path):
    runs = [grid_run(tmp_path), hidden_run(tmp_path)]
    assert telling_sample(runs[0]) == "needle-1000-50-0"
    addresses = [shot.address for shot in of_page("file:///page.html", runs)]
    assert addresses[0] == "file:///page.html#beside=hidden"
    assert addresses[-1].endswith("#beside=hidden&sample=needle-1000-50-0")


def test_the_documentation_shows_each_picture_and_all_are_small():
    shown = "".join((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in ("gallery", "results"))
    for name in NAMES:
        assert f"(images/{name}.png)" in shown
        assert (ROOT / "docs/images" / f"{name}.png").stat().st_size <= LARGEST
