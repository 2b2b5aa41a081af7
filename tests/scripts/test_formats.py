"""The committed table of formats is the one that the script makes of the committed rows."""

import pandas as pd
import pytest

from scripts.results import formats
from tests.support.paths import ROOT

FOLDER = ROOT / "results" / "formats"


@pytest.fixture(scope="module")
def texts() -> pd.DataFrame:
    return pd.read_csv(FOLDER / "text.csv")


@pytest.fixture(scope="module")
def needles() -> pd.DataFrame:
    return pd.read_csv(FOLDER / "needles.csv")


def test_the_table_is_made_of_the_rows_beside_it(texts, needles):
    assert formats.table(texts, needles).markdown() == (FOLDER / "formats.md").read_text("utf-8")
    changed = texts.assign(kl=texts["kl"] * 2)
    assert formats.table(changed, needles).markdown() != (FOLDER / "formats.md").read_text("utf-8")


def test_every_format_has_every_window_and_needle(texts, needles):
    for rows, unit in ((texts, "essay"), (needles, "needle")):
        counts = rows.groupby("format")[unit].nunique()
        assert set(counts.index) == set(texts["format"]) <= set(formats.FORMATS)  # others can be added: `--add`
        assert counts.nunique() == 1 and counts.iloc[0] * len(counts) == len(rows)
        assert {formats.RAW, "nvfp4", "ggml q8_0", "KIVI 4 bits keys, 4 values"} <= set(counts.index)


@pytest.mark.parametrize(
    ("name", "bits"), [("ggml q8_0", 8.5), ("ggml q4_0", 4.5), ("mxfp4", 4.25), ("nvfp4", 4.5), ("as it is", 16)]
)
def test_bits_are_those_of_the_format(texts, name, bits):
    """NVFP4's float32 number for each head is less than a thousandth of a bit."""
    assert texts[texts["format"] == name]["bits"].to_numpy() == pytest.approx(bits, abs=1e-3)


def test_added_rows_stand_among_those_of_the_same_windows(texts, tmp_path):
    file = tmp_path / "text.csv"
    whole = texts[texts["format"].isin([formats.RAW, "nvfp4"])]
    whole[whole["format"] == formats.RAW].to_csv(file, index=False)
    added = formats.written(iter(whole.to_dict("records")), file, "essay", add=True)
    assert added.equals(whole.reset_index(drop=True))
    assert formats.names(frozenset(added["format"]))[:2] == [formats.RAW, list(formats.FORMATS)[1]]
    assert "nvfp4" not in formats.names(frozenset(added["format"]))
    with pytest.raises(SystemExit, match="is of other samples"):
        formats.written(iter(whole.iloc[:2].to_dict("records")), file, "essay", add=True)
