"""`kvbench --help`: an overview that fits the terminal, sections that list everything, words that are found."""

import re

import pytest

from kvbench.configuration.conf import choices, file_of, more_configuration, options
from kvbench.metrics.answers import METRICS
from kvbench.runner.help import help_text
from kvbench.runner.help_folded import folded
from kvbench.runner.help_methods import GROUPS as METHOD_GROUPS
from kvbench.runner.help_methods import OTHERS, grouped
from kvbench.runner.help_sections import GROUPS, PARTS, SECTIONS, section_named
from tests.support.paths import ROOT


@pytest.mark.heavy
def test_help_lists_every_choice_with_a_line_about_it():
    everything = help_text("all")
    for group in GROUPS:
        text = help_text(group)
        assert text in everything
        for name, about in options(group).items():
            assert about, f"{group}/{name} says nothing about itself"
            assert name in text
            described = text if group != "method" else help_text(name)
            assert about in " ".join(described.replace(r"\[", "[").split())
    assert set(options("method")) >= {"full", "streaming_llm", "h2o", "snapkv", "pyramidkv"}
    assert set(options("model")) >= {
        "smollm2-135m",
        "llama2-7b-chat",
        "llama3-8b",
        "llama3-70b",
        "mistral-7b-v0.2",
        "mistral-7b-v0.3",
        "qwen2.5-3b",
        "yi-1.5-9b",
    }


def test_the_short_help_has_the_first_methods_of_each_group_and_the_names_of_other_choices():
    words = help_text().replace("[cyan]", "").replace("[/]", "").split()
    shown = [name for name in options("method") if name in words]
    assert 20 <= len(shown) <= 30 and f"{len(choices('method')) - len(shown)} more," in help_text()
    assert all(any(row.name in shown for row in rows) for rows in grouped().values())
    assert {f"{name}," for group in ("model", "benchmark") for name in choices(group)[:-1]} <= {*words}
    assert [line.split()[0] for line in help_text().splitlines() if "pyramidkv_…" in line] == ["[cyan]pyramidkv_…"]


def test_experiments_whose_names_begin_alike_are_one_line():
    names = ["paper_fig2", "paper_memory", "paper_table1", "paper_table2", "paper_table3", "paper_table9", "other_fig1"]
    assert folded(names) == {"paper_…": "fig2, memory, table1 to table3, table9", "other_fig1": ""}
    assert folded(["mine", "yours"]) == {"mine": "", "yours": ""}
    assert sum("to" in ends for ends in folded(choices("experiment")).values()) == 4  # one line for each of the papers


@pytest.mark.parametrize("width", [80, 120])
def test_help_fits_the_terminal(width, monkeypatch, kvbench):
    monkeypatch.setenv("COLUMNS", str(width))
    for words in ((), ("settings",), ("method",), ("experiment",), *((part,) for part in PARTS)):
        lines = kvbench("--help", *words)[1].splitlines()
        assert lines and [line for line in lines if len(line) > width or line != line.rstrip()] == []


def test_words_behind_a_section_leave_what_has_them(kvbench):
    code, out, _ = kvbench("--help", "method", "attention", "chunks")
    assert code == 0 and {line.split()[0] for line in out.splitlines() if line[2:3].strip()} >= {"chunkkv"}
    assert "snapkv " not in out and "knorm" not in out
    assert "decode.batch=auto" in kvbench("--help", "settings", "decode")[1]
    assert kvbench("--help", "commands", "leaderboard")[1].startswith("  leaderboard")
    code, out, err = kvbench("--help", "method", "zebra")
    assert (code, out) == (2, "") and "nothing in --help method has 'zebra' in its name or description" in err


def test_methods_are_grouped_as_in_their_documentation():
    documented, group = {}, ""
    table = (ROOT / "docs/methods.md").read_text(encoding="utf-8").partition("| | method |")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        _, heading, _, _, names, _, _ = line.split("|")
        group = heading.strip() or group
        documented |= dict.fromkeys(re.findall(r"`(\w+)`", names), group)
    assert [*dict.fromkeys(documented.values())] == list(METHOD_GROUPS)
    shown = {name: group for group, rows in grouped().items() for row in rows for name in (row.name, *row.presets)}
    assert sorted(shown) == sorted(choices("method"))
    for name, group in shown.items():
        assert group in METHOD_GROUPS, f"{file_of('method', name)} states no help_group of {', '.join(METHOD_GROUPS)}"
        assert documented.get(name, group) == group, f"docs/methods.md has {name} under {documented[name]}, not {group}"
    for group, rows in grouped().items():
        for row in rows:
            assert row.name in documented, f"docs/methods.md has no row with {row.name}, of {group}"


def test_a_method_without_a_group_stands_under_others_and_its_preset_below_it(tmp_path):
    (tmp_path / "method").mkdir()
    for name, lines in (
        ("mine", 'about: "Mine"'),
        ("another", 'defaults: [mine@_here_, _self_]\nabout: "Derived"'),
        ("snapkv_mine", 'about: "A preset by its name"'),
        ("theirs", 'about: "Theirs"\nhelp_group: other libraries'),
    ):
        (tmp_path / "method" / f"{name}.yaml").write_text(f"# @package method.{name}\n{lines}\n")
    with more_configuration(tmp_path):
        rows = {group: {row.name: row.presets for row in rows} for group, rows in grouped().items()}
        overview = help_text()
    assert rows[OTHERS] == {"mine": [], "another": []}
    assert rows["which tokens stay"]["snapkv"] == ["snapkv_codebook", "snapkv_mine", "snapkv_paper"]
    assert rows["other libraries"] == {"kvpress": [], "theirs": []}
    assert all(f"[cyan]{name} " in overview for name in ("mine", "another", "snapkv_mine", "theirs"))


def test_the_help_of_a_method_has_its_presets(kvbench):
    code, out, _ = kvbench("--help", "snapkv")
    names = [line.split()[0] for line in out.splitlines() if line[2:3].strip()]
    assert code == 0 and names[:3] == ["snapkv", "snapkv_codebook", "snapkv_paper"]
    assert "snapkv_kivi4" in names[3:] and all(name.startswith("snapkv_") for name in names[1:])


@pytest.mark.parametrize("section", SECTIONS)
def test_each_section_of_the_help_is_printed_and_named_by_the_overview(section, kvbench):
    code, out, err = kvbench("--help", section)
    assert (code, err) == (0, "") and out.count("\n") > 2
    assert section in " ".join(help_text().partition("--help SECTION")[2].split())


@pytest.mark.parametrize("part", PARTS)
def test_each_kind_of_part_is_a_section_with_a_line_about_every_choice(part):
    first, *lines = help_text(part).splitlines()
    assert first.startswith(f"[bold]{part}@method.NAME.{part}=[/]")
    described = [line.removeprefix("  [cyan]") for line in lines if line.startswith("  [cyan]")]
    assert [line.partition("[/]")[0].strip() for line in described] == choices(part)
    assert all(line.partition("[/]")[2].strip() for line in described)
    assert f"{part}@method.NAME.{part}=…" in help_text()


def test_a_part_is_described_by_its_file_or_else_by_its_class_and_has_its_keys(tmp_path):
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "mine.yaml").write_text("about: Of my own\n_target_: mine.Storage\nbits: 3\n")
    with more_configuration(tmp_path):
        assert "[/]  Of my own; bits=3\n" in help_text("storage")
    assert "[/]  Keys and values in the model's dtype\n" in help_text("storage")
    assert "[/]  as window_attention; window=8\n" in help_text("scoring")


def test_a_key_is_described_for_the_files_of_ones_own_too(tmp_path):
    (tmp_path / "benchmark").mkdir()
    file = tmp_path / "benchmark" / "mine.yaml"
    file.write_text("_target_: mine.Lines\nlengths: 7 # of mine\nrows_of_mine: 60 # in each prompt\n")
    with more_configuration(tmp_path):
        assert "mine: 60" in help_text("benchmark.rows_of_mine") and "in each prompt" in help_text(
            "benchmark.rows_of_mine"
        )
        assert all(word in help_text("benchmark.lengths") for word in ("mine: 7", "of mine", "niah: "))


def test_the_metrics_are_those_that_a_benchmark_takes():
    for name in METRICS:
        assert re.search(rf"\[cyan\]{name} *\[/\]  \w", help_text("metric"))
    assert "benchmark.metric=" in help_text("metric").splitlines()[0]


@pytest.mark.parametrize("word, section", [("methods", "method"), ("method", "method"), ("head", "heads"), ("x", None)])
def test_a_section_is_known_in_the_singular_and_the_plural(word, section):
    assert section_named(word) == section


def test_an_unknown_section_is_one_line(kvbench):
    code, out, err = kvbench("--help", "methods")
    assert (code, out) == (2, "")
    assert "unknown section of --help 'methods'. Did you mean 'method'?" in err


@pytest.mark.parametrize(
    "word, lines",
    [
        ("jsonl", ["[bold]benchmark[/]", "jsonl"]),
        ("compression_ratio", ["compression_ratio is kvpress's share to remove"]),
        ("fp8", ["[bold]method[/]", "fp8_token", "[bold]storage[/]"]),
        ("benchmark.lengths", ["benchmark.lengths=", "niah: [1024, 2048]"]),
        ("engine.concurrency", ["openai: 4", "questions at once"]),
    ],
)
def test_help_finds_what_has_a_word(word, lines):
    text = help_text(word)
    assert all(line.replace("[1024", r"\[1024") in text or line in text for line in lines)
