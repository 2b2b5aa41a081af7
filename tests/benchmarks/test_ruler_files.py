"""RULER's samples on the disk: the cache, import and export in the official layout."""

import json
import shutil
from pathlib import Path

import pytest

from kvbench.benchmarks.base import text_unit
from kvbench.benchmarks.ruler import benchmark as benchmark_module
from kvbench.benchmarks.ruler import files
from kvbench.errors import UserError
from kvbench.runner.ruler_files import main
from tests.support.command import kvbench
from tests.support.ruler_data import DATA, SQUAD, rows, ruler


@pytest.fixture(autouse=True)
def cache(monkeypatch, embedded, tmp_path):
    """A cache of the test's own; `embedded` has found its model before."""
    monkeypatch.setenv("KVBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ruler"


@pytest.fixture
def generated(monkeypatch):
    """How often samples were made, and how many."""
    counts = []

    def counting(name, length, count, *rest):
        counts.append(count)
        return original(name, length, count, *rest)

    original = benchmark_module.generate
    monkeypatch.setattr(benchmark_module, "generate", counting)
    return counts


def test_samples_from_the_cache_equal_fresh_ones(embedded, generated):
    fresh, again = (ruler(tasks=["vt"]).samples(embedded.tokenizer) for _ in range(2))
    assert fresh == again and generated == [2]


def test_the_cache_serves_fewer_samples_and_more_are_made_anew(embedded, generated):
    many = ruler(tasks=["vt"], num_samples=5).samples(embedded.tokenizer)
    few = ruler(tasks=["vt"], num_samples=3).samples(embedded.tokenizer)
    more = ruler(tasks=["vt"], num_samples=6).samples(embedded.tokenizer)
    assert few == many[:3] and more[:5] == many
    assert generated == [5, 6]


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-100], lambda text: text.replace("VAR", "var", 1), lambda text: ""]
)
def test_a_damaged_file_of_the_cache_is_made_again(damage, embedded, generated, cache):
    fresh = ruler(tasks=["vt"]).samples(embedded.tokenizer)
    (file,) = cache.iterdir()
    file.write_text(damage(file.read_text()))
    assert ruler(tasks=["vt"]).samples(embedded.tokenizer) == fresh
    assert ruler(tasks=["vt"]).samples(embedded.tokenizer) == fresh
    assert generated == [2, 2]


@pytest.mark.parametrize("change", [{"seed": 1}, {"count_chat_template": True}, {"lengths": [1100]}])
def test_what_changes_samples_has_a_file_of_its_own(change, embedded, generated, cache):
    ruler(tasks=["vt"]).samples(embedded.tokenizer)
    ruler(tasks=["vt"], **change).samples(embedded.tokenizer)
    assert generated == [2, 2] and len(list(cache.iterdir())) == 2


def test_other_questions_and_essays_have_files_of_their_own(embedded, generated, cache, tmp_path):
    other = tmp_path / "squad.json"
    other.write_text(json.dumps(json.loads(Path(SQUAD).read_text())))
    for squad in (SQUAD, str(other)):
        ruler(tasks=["qa_1"], lengths=[2048], squad=squad).samples(embedded.tokenizer)
    (tmp_path / "a.txt").write_text("One essay. And one sentence. " * 300)
    for essays in (None, str(tmp_path)):
        ruler(tasks=["niah_single_2"], essays_dir=essays, sentences="simple").samples(embedded.tokenizer)
    assert len(list(cache.iterdir())) == len(generated) == 4


def test_exported_samples_are_read_back(embedded, tmp_path):
    made = ruler(lengths=[1024, 2048], tasks=["niah_multivalue", "vt", "qa_2"])
    for length, name, several in made.generated(embedded.tokenizer):
        assert files.export(tmp_path, length, name, several) == tmp_path / str(length) / name / "validation.jsonl"
    read = ruler(lengths=[1024, 2048], data_dir=str(tmp_path))
    ours, theirs = made.samples(embedded.tokenizer), read.samples(embedded.tokenizer)
    other = {"meta": 0, "unit": 0}
    assert [vars(sample) | other for sample in ours] == [vars(sample) | other for sample in theirs]
    assert theirs[0].meta == {"task": "niah_multivalue", "length": 1024, "origin": "imported"}


def test_official_files_are_read_as_they_are(embedded):
    samples = ruler(lengths=[2048], data_dir=str(DATA)).samples(embedded.tokenizer)
    assert len(samples) == 14
    official = rows(DATA / "2048" / "cwe" / "validation.jsonl")
    ours = [sample for sample in samples if sample.meta["task"] == "cwe"]
    for sample, row in zip(ours, official, strict=True):
        assert (sample.prompt, sample.prefix, list(sample.answers)) == (
            row["input"],
            row["answer_prefix"],
            row["outputs"],
        )
    assert len({sample.id for sample in samples}) == 14
    assert len(ruler(lengths=[2048], data_dir=str(DATA), num_samples=1).samples(embedded.tokenizer)) == 7


def test_an_imported_question_on_documents_is_one_unit_of_intervals_at_all_lengths(embedded, tmp_path):
    for length in (1024, 2048):
        for name in ("qa_1", "vt"):
            official = rows(DATA / f"2048/{name}/validation.jsonl")
            changed = [row | {"length": length, "input": f"{length} {row['input']}"} for row in official]
            files.export(tmp_path, length, name, changed)
    samples = ruler(lengths=[1024, 2048], data_dir=str(tmp_path)).samples(embedded.tokenizer)
    questions = [sample for sample in samples if sample.meta["task"] == "qa_1"]
    assert [sample.unit for sample in questions] == [text_unit(sample.question) for sample in questions]
    assert len(questions) == 4 and len({sample.unit for sample in questions}) == 2
    assert {sample.unit for sample in samples if sample.meta["task"] == "vt"} == {""}


def test_a_prefix_inside_the_input_is_cut_off(embedded):
    samples = ruler(lengths=[4096], data_dir=str(DATA / "prefix_inside")).samples(embedded.tokenizer)
    assert len(samples) == 2
    for sample, row in zip(samples, rows(DATA / "prefix_inside" / "niah_multikey_3.jsonl"), strict=True):
        assert sample.prompt + sample.prefix == row["input"]
        assert sample.prefix.startswith(" The special magic uuid for ") and sample.prefix.endswith(" text is")
        assert sample.question.startswith("What is the special magic uuid for ") and sample.question.endswith("?")


@pytest.mark.parametrize("name", ["vt", "cwe", "qa_1"])
@pytest.mark.parametrize("inside", [True, False])
def test_a_prefix_is_found_behind_the_question_only(name, inside, tmp_path):
    """The worked examples hold the same words."""
    official = [
        (row["input"], row["answer_prefix"] if inside else "") for row in rows(DATA / f"2048/{name}/validation.jsonl")
    ]
    path = tmp_path / f"{name}.jsonl"
    path.write_text(
        files.lines({"index": 0, "input": text + prefix, "outputs": ["a"], "length": 9} for text, prefix in official)
    )
    assert [(row["input"], row["answer_prefix"]) for row in files.read(path, name, 2048, 9)] == official


@pytest.mark.parametrize("layout", ["{length}/{name}/validation.jsonl", "{length}/data/{name}/validation.jsonl"])
def test_layouts_with_lengths_serve_several(layout, tmp_path, embedded):
    for length in (2048, 4096):
        target = tmp_path / layout.format(length=length, name="cwe")
        target.parent.mkdir(parents=True)
        shutil.copy(DATA / str(length) / "cwe" / "validation.jsonl", target)
    samples = ruler(lengths=[2048, 4096], tasks="cwe", data_dir=str(tmp_path)).samples(embedded.tokenizer)
    assert [sample.meta["length"] for sample in samples] == [2048, 2048, 4096]


def test_files_without_a_length_serve_one_length_only(embedded):
    folder = str(DATA / "2048")
    assert ruler(lengths=[2048], tasks="vt", data_dir=folder).samples(embedded.tokenizer)
    with pytest.raises(UserError, match=r"has neither 2048/vt/validation\.jsonl nor .*found there.*: none"):
        ruler(lengths=[2048, 4096], tasks="vt", data_dir=folder)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "row 1: broken JSON"),
        ('{"index": 0, "input": "x", "length": 9}', "row 1: field 'outputs' is missing"),
        ('{"index": 0, "input": "", "outputs": ["a"], "length": 9}', "row 1: field 'input' is empty"),
        ('{"index": 0, "input": "x", "outputs": [], "length": 9}', "row 1: field 'outputs' is empty"),
        ('{"index": 0, "input": "x", "outputs": ["a", 1], "length": 9}', "row 1: field 'outputs' is"),
        ('{"index": 0, "input": "x", "outputs": ["a"], "length": 4097}', "row 1: its length is 4097, over the 4096"),
        (
            '{"index": 0, "input": "x", "outputs": ["a"], "length": 9, "answer_prefix": 3}',
            "row 1: field 'answer_prefix' is not a text",
        ),
        ("", "holds no rows"),
    ],
)
def test_malformed_files_are_told_by_row(line, message, tmp_path):
    (tmp_path / "fwe.jsonl").write_text(line + "\n")
    with pytest.raises(UserError, match=message):
        ruler(lengths=[4096], data_dir=str(tmp_path))


def test_missing_tasks_and_folders_are_told(tmp_path):
    with pytest.raises(UserError, match="is not a folder"):
        ruler(data_dir=str(tmp_path / "none"))
    with pytest.raises(UserError, match=r"neither 2048/niah_multiquery/.*found there.*2048/vt"):
        ruler(lengths=[2048], tasks=["vt", "niah_multiquery"], data_dir=str(DATA))


def test_the_command_writes_the_official_files(embedded, tmp_path, capsys):
    embedded.tokenizer.save_pretrained(tmp_path / "tokenizer")
    main(
        [
            str(tmp_path / "out"),
            f"model.path={tmp_path / 'tokenizer'}",
            "benchmark.lengths=[2048]",
            "benchmark.tasks=[niah_multikey_3,fwe]",
            "benchmark.num_samples=2",
        ]
    )
    assert "2 samples" in capsys.readouterr().out
    for name in ("niah_multikey_3", "fwe"):
        file = f"2048/{name}/validation.jsonl"
        assert (tmp_path / "out" / file).read_bytes() == (DATA / file).read_bytes()


def test_the_command_tells_its_usage_and_mistakes(capsys, tmp_path):
    assert kvbench("ruler", "--help") == 0
    assert "usage: kvbench ruler [-h] FOLDER [KEY=VALUE ...]" in capsys.readouterr().out
    assert kvbench("ruler", "benchmark.lengths=[2048]") == 2
    assert "argument FOLDER: 'benchmark.lengths=[2048]' is KEY=VALUE, which comes later" in capsys.readouterr().err
    assert kvbench("ruler", tmp_path, "benchmark.tasks=[vx]") == 2
    assert "unknown task in benchmark.tasks 'vx'" in capsys.readouterr().err
