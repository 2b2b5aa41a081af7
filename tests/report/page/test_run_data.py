"""What a page is made of, and the command that makes it; the page itself is tested in a browser."""

import json
import re
import shutil

import pandas as pd
import pytest

from kvbench.cache.kept_positions import decode
from kvbench.configuration.conf import titled
from kvbench.records import load
from kvbench.records.pack import write_pack
from kvbench.records.store import PACK
from kvbench.report.page.labels import differences
from kvbench.report.page.page import ASSETS, embedded, page
from kvbench.report.page.run_data import find_runs, read_run
from kvbench.report.page.run_tables import heatmap
from kvbench.report.tables.run_table import summarise
from tests.support import records
from tests.support.command import kvbench
from tests.support.page import blocks
from tests.support.report_run import manifest, record, sample_row, write_run
from tests.support.runs import arguments, run


@pytest.fixture(scope="module")
def real(tiny_folder, tmp_path_factory):
    """A real run of a tiny random model, with a method that pools and one that quantises."""
    methods = ["method=[full,streaming_llm,snapkv,pooling_merge,kivi]", "ratio=[0.5]"]
    return run(*arguments(tiny_folder, tmp_path_factory.mktemp("report"), *methods, "method.kivi.storage.group=8"))


@pytest.mark.heavy
def test_a_real_run_on_the_page_is_what_its_records_say(real, tiny_folder):
    made, chunks = read_run(real)
    records = load(real)
    assert [row["label"] for row in made["settings"]] == [
        "FullKV",
        "StreamingLLM 0.5",
        "SnapKV 0.5",
        "Pooling-merge 0.5",
        "KIVI",
    ]
    summary = summarise(records, ["digits", "exact"]).set_index("setting").rename(index=titled)
    for row in made["settings"]:
        one = summary.loc[row["label"]]
        assert row["scores"]["digits"] == pytest.approx([one["digits"], one["low"], one["high"]], abs=1e-5)
        assert row["r_bytes"] == pytest.approx(one["r_bytes"], abs=1e-5) and row["samples"] == 3
    assert made["properties"] == ["depth", "tokens"]
    assert made["samples"]["property depth"] == [0, 50, 100]
    assert all(
        end.endswith(question)
        for end, question in zip(made["samples"]["end"], made["samples"]["question"], strict=True)
    )
    assert made["heatmap"]["depths"] == [0, 50, 100] and made["heatmap"]["lengths"] == [330]
    layers = [row for chunk in chunks for row in chunk]
    assert len(layers) == len(records) == 15
    by_label = {made["settings"][s]["label"]: row for s, row in zip(made["records"]["setting"], layers, strict=True)}
    assert by_label["FullKV"][1] == ["Z64"] * 3 and by_label["KIVI"][1] == ["Z64"] * 3
    assert by_label["Pooling-merge 0.5"][1] == [None] * 3
    shares, positions, heads = by_label["StreamingLLM 0.5"]
    assert shares == pytest.approx([0.5] * 3, abs=0.01)
    assert heads is None
    assert decode(positions[0])[-1] == 1 and 0 in decode(positions[0])
    assert made["manifests"][0]["status"] == "finished"
    weights = f"smollm2-135m from {tiny_folder.name} (float32)"
    assert made["caption"].startswith(f"niah · {weights} · question visible when compressing · 3 samples")


@pytest.mark.heavy
def test_a_page_is_one_text_with_nothing_to_load(real):
    html = page([real])
    assert not re.search(r'\b(?:src|href)="', html) and "@import" not in html and "url(" not in html
    assert "default-src 'none'" in html
    assert set(blocks(html)) == {"looks", "measures", "runs", "titles", "speeds", "serves", "run-0", "layers-0-0"}
    assert page([real]) == html


@pytest.mark.parametrize("text", ["</script><script>alert(1)</script>", "<!--", "]]>", "&lt;", "\u2028\u2029", "\x00"])
def test_data_cannot_leave_its_script_element(text):
    made = embedded({"text": text, text: 1})
    assert made.isascii() and not set("<>&") & set(made)
    assert json.loads(made) == {"text": text, text: 1}


def test_lone_surrogates_and_scores_that_are_missing_reach_the_page(tmp_path):
    rows = [record("s", "full", 1.0), record("t", "full", 1.0) | {"scores": {"exact": 1.0}}]
    folder = write_run(tmp_path / "run", rows, [sample_row("s", "\ud83d half")], [manifest(strange=float("nan"))])
    made = blocks(page([folder]).encode("utf-8").decode())["run-0"]
    assert made["samples"]["end"] == ["\ud83d half", ""]
    assert made["records"]["scores"]["score"] == [1, None]
    assert made["manifests"][0]["strange"] == "NaN"


def test_no_script_of_the_page_parses_html():
    for path in ASSETS.glob("*.js"):
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", path.read_text()
        )


def test_tasks_have_a_row_each_and_one_for_their_mean(tmp_path):
    rows = [
        record(f"{task}-{i}", setting, score, task=task, length=1000 * (1 + i % 2), group="g")
        for task, score in (("qa", 0.5), ("code", 0.25))
        for i in range(4)
        for setting in ("full", "snapkv 0.2")
    ]
    made, _ = read_run(write_run(tmp_path / "run", rows))
    assert [table["by"] for table in made["tasks"]] == ["task", "task and length"]
    assert [(row["task"], row["samples"], row["scores"]) for row in made["tasks"][0]["rows"]] == [
        ("qa", 4, [0.5, 0.5]),
        ("code", 4, [0.25, 0.25]),
        ("mean", 8, [0.375, 0.375]),
    ]
    assert [row["task"] for row in made["tasks"][1]["rows"]][:2] == ["qa · 1000", "qa · 2000"]
    assert made["properties"] == ["task", "length", "tokens"]  # the group is one for all


def test_a_property_may_have_the_name_of_a_column_that_tables_add(tmp_path):
    rows = [record(f"s{i}", "full", 1.0, label=of) for i, of in enumerate(["good", "bad", "bad"])]
    samples = [sample_row(row["sample"], "x") | {"meta": {"label": row["label"]}} for row in rows]
    made, _ = read_run(write_run(tmp_path / "run", rows, samples))
    assert made["properties"] == ["label", "tokens"]
    assert made["samples"]["property label"] == ["good", "bad", "bad"]
    assert [row["label"] for row in made["settings"]] == ["FullKV"]


def test_parameters_distinguish_settings_of_one_name(tmp_path):
    window = '{"scoring": {"window": %d}, "sinks": 4}'
    rows = [record(s, "snapkv 0.2", 1.0, parameters=window % w) for w in (8, 32) for s in "ab"]
    made, _ = read_run(write_run(tmp_path / "run", rows))
    assert [row["label"] for row in made["settings"]] == [
        "SnapKV 0.2 (scoring.window=8)",
        "SnapKV 0.2 (scoring.window=32)",
    ]
    assert [row["samples"] for row in made["settings"]] == [2, 2]
    assert differences(['{"a": 1}', "{}"]) == [" (a=1)", " (default a)"]
    assert differences(['{"a": null}', "{}"]) == [" (a=None)", " (default a)"]


def test_a_ratio_and_a_budget_distinguish_settings_of_one_name(tmp_path):
    """A whole prompt and one token of it."""
    requests = [{"ratio": 1.0, "budget": None}, {"ratio": None, "budget": 1}]
    rows = [record(s, "knorm 1", 1.0, key=f"{s} {request}", **request) for request in requests for s in "ab"]
    made, _ = read_run(write_run(tmp_path / "run", rows))
    assert [row["label"] for row in made["settings"]] == ["KNorm 1 (ratio 1)", "KNorm 1 (budget 1)"]
    assert [row["samples"] for row in made["settings"]] == [2, 2]


def test_report_says_findings_in_lines_and_nothing_of_labelled_settings(tmp_path, capsys, recwarn):
    rows = [record("a", "snapkv 0.2", 1.0, parameters=parameters) for parameters in ("{}", '{"sinks": 4}')]
    folder = write_run(tmp_path / "run", rows, manifests=[manifest()])
    again = write_run(tmp_path / "other", rows[:1]) / "records.jsonl"
    (folder / "records.0-of-2.jsonl").write_bytes(again.read_bytes())
    assert kvbench("report", str(folder), "--out", str(tmp_path / "page.html")) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("1 record with the same outcome in ") and not recwarn.list


def test_settings_stand_in_the_order_they_were_requested(tmp_path):
    rows = [record("s", setting, 1.0) for setting in ("kivi", "snapkv 0.2", "full", "later 0.1")]
    folder = write_run(tmp_path / "run", rows, manifests=[manifest(settings=["full", "snapkv 0.2", "kivi", "none 1"])])
    made, _ = read_run(folder)
    assert [row["label"] for row in made["settings"]] == ["FullKV", "SnapKV 0.2", "KIVI", "later 0.1"]


def test_many_settings_are_compared_with_one_alone_and_the_page_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("kvbench.report.tables.differences.EVERY_TWO", 2)
    rows = [record(sample, setting, 1.0) for sample in "st" for setting in ("kivi", "full", "snapkv 0.2")]
    made, _ = read_run(write_run(tmp_path / "run", rows))
    assert [row["setting"] for row in made["differences"]["of"]["FullKV"]] == ["KIVI", "SnapKV 0.2"]
    assert [*made["differences"]["of"]] == ["FullKV"]
    assert "of 3 settings only pairs with FullKV are given" in made["differences"]["notes"]["FullKV"]


def test_a_run_older_than_samples_and_positions_still_has_a_page(tmp_path):
    rows = [record(s, "full", 1.0, depth=d, length=100, seed=1) for s, d in (("a", 0), ("b", 50))]
    for row in rows:
        del row["kept_positions"]
    made, chunks = read_run(write_run(tmp_path / "run", rows))
    assert made["samples"]["end"] == ["", ""] and made["manifests"] == []
    assert made["properties"] == ["depth", "tokens"]
    assert chunks[0][0] == [[1.0] * 4, None, None]


@pytest.mark.heavy
def test_a_pack_has_the_page_of_its_run_without_prompts_and_positions(real, tmp_path):
    (tmp_path / "packs").mkdir()
    write_pack(real, tmp_path / "packs" / "one")
    assert find_runs([tmp_path / "packs"]) == [tmp_path / "packs" / "one"]
    (run, _), (pack, layers) = read_run(real), read_run(tmp_path / "packs" / "one")
    assert all(pack[name] == run[name] for name in ("settings", "differences", "tasks", "heatmap", "records"))
    assert set(pack["samples"]["end"]) == {""} and layers[0][0][1] is None


def test_heads_that_keep_different_numbers_of_tokens_have_shares_of_their_own(tmp_path):
    row = record("s", "full", 1.0) | {"kept_per_head": [None, [10, 30], None, None]}
    n = row["prompt_tokens"]
    _, chunks = read_run(write_run(tmp_path / "run", [row, record("t", "full", 1.0)]))
    assert chunks[0][0][2] == [None, [round(10 / n, 4), round(30 / n, 4)], None, None]
    assert chunks[0][1][2] is None


def test_runs_are_found_below_a_folder_and_once(tmp_path):
    a, b = (write_run(tmp_path / "runs" / name, [record("s", "full", 1.0)]) for name in "ab")
    (tmp_path / "runs" / "other").mkdir()
    assert find_runs([tmp_path / "runs"]) == [a, b]
    assert find_runs([b, tmp_path / "runs", a / ".." / "b"]) == [b, a]


def test_the_command_writes_the_page_and_says_where(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    a, b = (write_run(tmp_path / name, [record("s", "full", 1.0)], [sample_row("s")]) for name in "ab")
    kvbench("report", a)
    assert f"page     {a / 'report.html'} (" in capsys.readouterr().out
    kvbench("report", a, b)
    assert blocks((tmp_path / "report.html").read_text())["runs"] == ["a", "b"]
    kvbench("report", b, "--out", "there.html")
    assert blocks((tmp_path / "there.html").read_text())["run-0"]["samples"]["end"] == ["some text. What?"]
    assert not list(tmp_path.glob(".*"))


def test_a_page_of_other_runs_stays_or_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [record("s", "full", 1.0)], [sample_row("s")], [manifest()]
    a, b, c = (write_run(tmp_path / name, *rows) for name in "abc")
    kvbench("report", a, b)
    kvbench("report", b, c)
    kvbench("report", a, b)  # again
    assert sorted(path.name for path in tmp_path.glob("*.html")) == ["report-2.html", "report.html"]
    assert blocks((tmp_path / "report.html").read_text())["runs"] == ["a", "b"]
    assert "page     report-2.html (" in capsys.readouterr().out
    kvbench("report", c, "--out", "report.html")
    assert capsys.readouterr().err == "report.html is replaced: it was kvbench: a, b\n"
    (tmp_path / "notes.html").write_text("mine")
    kvbench("report", c, "--out", "notes.html")
    assert capsys.readouterr().err == "notes.html is replaced: it was not a page of runs\n"


def test_a_pack_beside_its_run_is_not_another_run(tmp_path):
    run = write_run(tmp_path / "runs" / "a", [record("s", "full", 1.0)], manifests=[manifest()])
    packed = tmp_path / "runs" / "a.pack"
    shutil.copytree(run / "manifests", packed / "manifests")
    (packed / PACK).touch()
    assert find_runs([tmp_path / "runs"]) == [run] and find_runs([packed]) == [packed]
    (run / "records.jsonl").rename(tmp_path / "records.jsonl")
    assert find_runs([tmp_path / "runs"]) == [packed]


def test_runs_without_outputs_or_records_are_reported_and_left_out(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "a", [record("s", "full", 1.0)], [sample_row("s")])
    write_run(tmp_path / "runs" / "b", [records.record("probe", sample="s")])
    write_run(tmp_path / "runs" / "d", [])
    assert kvbench("report", "runs") == 0
    err = capsys.readouterr().err
    assert "runs/d holds no record yet: the same command again makes them" in err
    assert "runs/b is a run of probes: no outputs to show" in err
    assert blocks((tmp_path / "runs" / "a" / "report.html").read_text())["runs"] == ["a"]
    assert kvbench("report", "runs/b") == 2
    assert capsys.readouterr().err.startswith("kvbench: runs/b is a run of probes")


@pytest.mark.parametrize(
    "command, said",
    [
        ([], "the following arguments are required: RUN"),
        (["nowhere"], "there is no folder 'nowhere'"),
        (["file"], "file is not a folder"),
        (["empty"], "empty holds no records.jsonl, nor does any folder in it"),
        (["begun"], "begun holds no record yet"),
        (["run", "--out", "no/where.html"], "--out no/where.html: there is no folder 'no'"),
        (["run", "--out", "empty"], "--out empty is a folder: name a file, for example empty/report.html"),
        (["run", "--out", "run/records.jsonl"], "run/records.jsonl would be read as records"),
        (["run", "--colour"], "unrecognized arguments: --colour"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, capsys, monkeypatch, command, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    write_run(tmp_path / "begun", [])
    write_run(tmp_path / "run", [record("s", "full", 1.0)])
    assert kvbench("report", *command) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


def test_depths_and_lengths_of_own_prompts_that_have_no_order_are_no_heatmap():
    rows = pd.DataFrame({"label": "FullKV", "depth": [0, 50], "length": [400, 800], "scores": [{"score": 1.0}] * 2})
    assert heatmap(rows, ["score"])["grids"] == {"score": [[[1, None], [None, 1]]]}
    assert heatmap(rows.assign(length=[400, "long"]), ["score"]) is None
