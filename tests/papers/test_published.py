"""The papers' figures as data: whole, named in kvbench's words, and their errata in place."""

import re
from collections import defaultdict
from decimal import Decimal

import pandas as pd
import pytest

from kvbench.configuration.conf import options
from kvbench.errors import UserError
from kvbench.evaluation.settings import settings_of
from kvbench.papers.experiment import load
from kvbench.papers.published import COLUMNS, PUBLISHED, agree, concerns, errata, footnotes, items, published

LONGBENCH = (
    "narrativeqa qasper multifieldqa_en multifieldqa_zh hotpotqa 2wikimqa musique dureader gov_report qmsum multi_news "
    "vcsum trec triviaqa samsum lsht passage_count passage_retrieval_en passage_retrieval_zh lcc repobench-p"
).split()
RULER = "niah_single niah_multikey niah_multivalue niah_multiquery cwe fwe qa vt".split()
QUANTITIES = (
    "average needle memory_mb kv_share kv_saved kv_compression layer_compression lazy_layers latency_s allocation_s "
    "selection_s tokens_per_s throughput throughput_loss score_drop score_gain theta_k theta_v alpha beta datasets "
    "ratio_deviation prompt_tokens"
).split()


def every_figure() -> pd.DataFrame:
    return pd.concat([published(item).assign(name=item) for item in items()], ignore_index=True)


@pytest.fixture(scope="module")
def figures() -> pd.DataFrame:
    return every_figure()


@pytest.fixture(scope="module")
def every_erratum() -> pd.DataFrame:
    return pd.read_csv(PUBLISHED / "errata.csv", dtype=str, keep_default_na=False)


def figure(item: str, **where) -> str:
    frame = published(item)
    for field, value in where.items():
        frame = frame[frame[field] == value]
    (printed,) = frame["printed"]
    return printed


# The data


def test_figures_are_typed_and_keep_their_printed_text(figures):
    assert [*COLUMNS[:10], "printed", *COLUMNS[10:], "name"] == list(figures.columns)
    assert figures["value"].dtype == float and figures["ratio"].dtype == float
    assert str(figures["budget"].dtype) == "Int64"
    one = figures[(figures["name"] == "pyramidkv_table8") & (figures["printed"] == "04.67")]
    assert one["value"].tolist() == [4.67]
    assert figures[figures["printed"] == "18,409"]["value"].tolist() == [18409]


@pytest.mark.parametrize(
    ("item", "where", "printed"),
    [
        ("spindlekv_table10", {"method": "spindle", "setting": "21.2%", "column": "average"}, "40.10"),
        ("pyramidkv_table9", {"method": "h2o", "budget": 96, "column": "passage_retrieval_en"}, "77.48"),
        ("simlayerkv_table9", {"model": "mistral-7b-v0.3", "method": "simlayerkv_decode", "column": "lsht"}, "31.8"),
        ("simlayerkv_table7", {"model": "yi-1.5-9b", "method": "streaming_llm", "column": "trec"}, "67.0"),
        ("pooling_merge_table2", {"method": "pooling_merge", "column": "triviaqa"}, "23.61"),
    ],
)
def test_figures_copied_from_the_papers_by_hand(item, where, printed):
    assert figure(item, **where) == printed


def test_every_figure_is_a_number_or_says_why_it_is_missing(figures):
    lost = figures["printed"] == ""
    assert (figures["value"].isna() == lost).all()
    assert figures[lost]["note"].str.startswith("lost: ").all()
    assert not figures[~lost]["note"].str.startswith("lost").any()
    assert set(figures[lost]["paper"]) == {"simlayerkv"}


def test_model_method_setting_and_column_identify_a_value_of_a_table(figures):
    tables = figures[figures["item"] != "Text"]
    assert not tables.duplicated(["name", "model", "method", "setting", "column"]).any()


def test_names_are_kvbenchs(figures):
    assert set(figures["method"]) | set(figures["preset"]) <= {"", *options("method")}
    assert set(figures["model"]) <= {"", *options("model")}
    assert set(figures["column"]) <= {*LONGBENCH, *RULER, *QUANTITIES}


@pytest.mark.parametrize("name", ["simlayerkv_table1", "simlayerkv_table2", "simlayerkv_table7", "simlayerkv_table9"])
def test_a_preset_is_the_method_that_the_items_experiment_runs_for_the_row(name):
    cfg = load(name)
    for method in {setting.name for setting in settings_of(cfg)}:
        rows = published(name)
        rows = rows[agree(rows, cfg.experiment.rows(method))]
        assert len(rows) and set(rows["preset"]) == {method}


def test_budget_and_ratio_are_the_printed_setting(figures):
    assert (figures["budget"].isna() | figures["ratio"].isna()).all()
    for _, row in figures[figures["setting"].str.fullmatch(r"\d+") & (figures["method"] != "full")].iterrows():
        assert row["budget"] == int(row["setting"])
    shares = figures[figures["ratio"].notna() & (figures["paper"] != "kvpress")]
    printed = shares["setting"].str.extract(r"([\d.]+)%", expand=False).astype(float)
    assert (printed / 100 - shares["ratio"]).abs().max() < 1e-12
    assert set(shares["paper"]) == {"spindlekv"} and len(shares) > 900
    removed = figures[figures["setting"].str.startswith("compression_ratio ")]
    assert (1 - removed["setting"].str.split().str[1].astype(float) - removed["ratio"]).abs().max() < 1e-12


def test_the_file_says_which_paper_and_item_it_is(figures):
    for name, frame in figures.groupby("name"):
        assert name == f"{frame['paper'].iloc[0]}_{frame['item'].iloc[0].lower().replace(' ', '')}"
        assert frame["paper"].nunique() == frame["item"].nunique() == 1


def test_the_readme_lists_every_file_with_its_number_of_figures(figures):
    text = (PUBLISHED / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)\.csv` \| ([a-z]+ ?\w*) \|.*\| (\d+) \| (\d*) \|$", text, flags=re.MULTILINE)
    counted = [
        (name, frame["item"].iloc[0].lower(), str((frame["printed"] != "").sum()), frame["printed"].eq("").sum())
        for name, frame in figures.groupby("name", sort=False)
    ]
    assert listed == [(*row, str(lost or "")) for *row, lost in counted]
    lost = figures["printed"].eq("").sum()
    assert f"| all | | | {len(figures) - lost} | {lost} |" in text


def test_an_unknown_item_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match=r"unknown published item 'spindlekv_table12'.*spindlekv_table2"):
        published("spindlekv_table12")
    with pytest.raises(UserError, match="unknown published item 'errata'"):
        errata("errata")


def test_items_are_in_the_order_of_the_papers():
    tables = [item for item in items() if item.startswith("pyramidkv_table")]
    assert tables == [f"pyramidkv_table{n}" for n in range(1, 12)]


def test_a_damaged_file_is_reported_in_one_sentence(tmp_path):
    (tmp_path / "x_table1.csv").write_text("paper,item\nx,Table 1\n")
    with pytest.raises(UserError, match="expected paper, item, model"):
        published("x_table1", tmp_path)
    text = (PUBLISHED / "pooling_merge_table2.csv").read_text(encoding="utf-8")
    (tmp_path / "x_table1.csv").write_text(text.replace("29.75", "29.7s"), encoding="utf-8")
    with pytest.raises(UserError, match=r"x_table1\.csv: .*29\.7s"):
        published("x_table1", tmp_path)


# The errata


def test_every_average_is_the_mean_of_its_figures_or_has_an_erratum(figures):
    rows = defaultdict(list)
    for cell in figures.to_dict("records"):
        rows[cell["name"], cell["model"], cell["method"], cell["setting"]].append(cell)
    taken = 0
    for (name, *where), row in rows.items():
        average = next((cell for cell in row if cell["column"] == "average"), None)
        parts = [cell["printed"] for cell in row if average and cell is not average and cell["unit"] == average["unit"]]
        if len(parts) < 2 or "" in [*parts, average["printed"]]:
            continue
        taken += 1
        printed = Decimal(average["printed"])
        apart = abs(sum(map(Decimal, parts)) / len(parts) - printed)
        if apart <= Decimal(1).scaleb(printed.as_tuple().exponent):
            continue
        wrong = errata(name)
        denied = [
            e for _, e in wrong[wrong["kind"] == "average"].iterrows() if concerns(e, pd.DataFrame([average])).any()
        ]
        assert denied, (name, where)
    assert taken > 180


def test_every_erratum_concerns_a_figure_and_has_a_documented_kind(figures, every_erratum):
    kinds = set()
    for line in (PUBLISHED / "README.md").read_text(encoding="utf-8").split("| `kind` |")[1].splitlines():
        if line.startswith("| `"):
            kinds |= set(re.findall(r"`(\w+)`", line.split("|")[1]))
    assert set(every_erratum["kind"]) == kinds
    assert not every_erratum.duplicated().any()
    for _, erratum in every_erratum.iterrows():
        assert concerns(erratum, figures).any(), erratum.to_dict()
        assert erratum["text"].endswith(".") and len(erratum["text"]) < 400


@pytest.mark.parametrize(
    ("item", "where", "kind", "words"),
    [
        ("pyramidkv_table2", {"setting": "Full", "column": "lcc"}, "mislabelled", "58.05"),
        ("pyramidkv_table2", {"setting": "2048", "column": "qmsum"}, "contradiction", "23.30"),
        ("pyramidkv_table2", {"setting": "64", "column": "memory_mb"}, "arithmetic", "0.125 MiB"),
        ("pyramidkv_table2", {"setting": "1024", "column": "trec"}, "repeated", "Five of the six"),
        ("pyramidkv_text", {"column": "trec"}, "claim", "19.5"),
        ("pyramidkv_text", {"column": "datasets"}, "claim", "16"),
        ("pyramidkv_table4", {"setting": "α = 8", "column": "hotpotqa"}, "contradiction", "39.73"),
        ("pyramidkv_table5", {"setting": "β = 20", "column": "lcc"}, "contradiction", "57.86"),
        ("pyramidkv_table1", {"model": "mistral-7b-v0.2", "setting": "64", "method": "h2o"}, "average", "32.04"),
        ("pyramidkv_table9", {"setting": "96", "method": "streaming_llm", "column": "average"}, "average", "27.36"),
        ("pyramidkv_table10", {"setting": "128", "method": "pyramidkv", "column": "trec"}, "budget", "163 tokens"),
        ("pooling_merge_table2", {"method": "h2o", "column": "triviaqa"}, "mislabelled", "84.70"),
        ("pooling_merge_table2", {"method": "full", "column": "trec"}, "copied", "PyramidKV"),
        ("pooling_merge_table2", {"method": "pooling_merge", "column": "multi_news"}, "claim", "competitive"),
        ("simlayerkv_table2", {"model": "llama2-7b-chat", "method": "simlayerkv_decode"}, "ratio", "1.25"),
        ("simlayerkv_table2", {"model": "llama3-8b", "method": "minicache"}, "ratio", "1.22"),
        ("simlayerkv_table2", {"method": "minicache", "column": "layer_compression"}, "definition", "32 / 24"),
        ("simlayerkv_table12", {"setting": "w_sink = 4", "column": "vcsum"}, "mislabelled", "hotpotqa"),
        ("simlayerkv_text", {"method": "simlayerkv_decode_kivi4", "column": "score_drop"}, "unit", "3.2 %"),
        ("simlayerkv_text", {"printed": "5"}, "ratio", "before truncation"),
        ("spindlekv_table1", {"method": "full", "column": "average"}, "mislabelled", "Llama-3-8B"),
        ("spindlekv_table1", {"method": "pyramidinfer", "setting": "25.1%", "column": "average"}, "average", "31.955"),
        ("spindlekv_table8", {"method": "spindle", "setting": "20.0%"}, "mislabelled", "21.2 %"),
        ("spindlekv_table10", {"setting": "29.3%", "method": "spindle", "column": "repobench-p"}, "outlier", "54.04"),
        ("spindlekv_table10", {"method": "spindle", "column": "average"}, "ratio", "at most once per KV head"),
        ("spindlekv_table3", {"column": "beta"}, "missing", "window"),
        ("spindlekv_table5", {"setting": "29.4% without eviction", "column": "lcc"}, "protocol", "thresholds"),
    ],
)
def test_known_errors_are_marked_on_their_figures(item, where, kind, words):
    frame = published(item)
    for field, value in where.items():
        frame = frame[frame[field] == value]
    assert len(frame)
    wrong = errata(item)
    hits = [e for _, e in wrong[wrong["kind"] == kind].iterrows() if concerns(e, frame).any()]
    assert any(words in e["text"] for e in hits)


def test_an_erratum_concerns_the_figures_that_agree_with_its_fields_and_no_others():
    frame, wrong = published("pooling_merge_table2"), errata("pooling_merge_table2")
    exchanged = wrong[(wrong["kind"] == "mislabelled") & (wrong["method"] == "h2o")].iloc[0]
    hit = frame[concerns(exchanged, frame)]
    assert hit[["method", "column", "printed"]].values.tolist() == [["h2o", "triviaqa", "72.30"]]


def test_footnotes_are_numbered_once_each_and_mark_their_figures():
    frame, wrong = published("spindlekv_table10"), errata("spindlekv_table10")
    texts, marks = footnotes(frame, wrong)
    assert len(texts) == len(set(texts)) and len(marks) == len(frame)
    assert {number for numbers in marks for number in numbers} == set(range(1, len(texts) + 1))
    high = frame.index[frame["printed"] == "60.04"][0]
    assert [texts[number - 1].startswith("Out of line") for number in marks[high]] == [False, True]
    assert marks[frame.index[frame["method"] == "full"][0]] == ()
    one_row = frame[frame["method"] == "full"]
    assert footnotes(one_row, wrong) == ([], [()] * len(one_row))
