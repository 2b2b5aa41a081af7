"""LongBench's rows: what becomes of a row, where rows come from, and faults in them."""

import hashlib
import json
import shutil
import zipfile
from pathlib import Path

import pytest

from kvbench.benchmarks import LongBench, LongBenchE
from kvbench.benchmarks.base import data_hash
from kvbench.benchmarks.longbench import data
from kvbench.errors import UserError
from tests.support.paths import DATA

ROWS = DATA / "longbench"
THERE = sorted(path.stem for path in ROWS.glob("*.jsonl"))


def benchmark(kind=LongBench, **changes):
    return kind(**({"tasks": THERE, "max_length": 500, "data_dir": str(ROWS)} | changes))


def samples(embedded, **changes):
    return benchmark(**changes).samples(embedded.tokenizer)


@pytest.fixture
def folder(tmp_path) -> Path:
    """A copy of the rows to spoil."""
    shutil.copytree(ROWS, tmp_path / "rows")
    return tmp_path / "rows"


def rewrite(file: Path, change) -> None:
    """Change the first row of a file."""
    first, *others = file.read_text(encoding="utf-8").splitlines(keepends=True)
    row = json.loads(first)
    change(row)
    file.write_text(json.dumps(row) + "\n" + "".join(others), encoding="utf-8")


# --- samples


def test_a_sample_has_what_its_task_asks_for(embedded):
    by_task = {sample.meta["task"]: sample for sample in samples(embedded)}
    assert set(by_task) == set(THERE)
    assert by_task["qasper"].chat and by_task["qasper"].max_new_tokens == 128
    assert not by_task["lcc"].chat and not by_task["trec"].chat
    assert by_task["samsum"].stop_at_newline and not by_task["lcc"].stop_at_newline
    chinese = by_task["passage_retrieval_zh"].meta
    assert (chinese["group"], chinese["language"], chinese["length"]) == ("synthetic", "zh", 5088)
    assert len(by_task["trec"].meta["all_classes"]) == 50
    assert by_task["lcc"].meta["metric_backend"] == "difflib"
    assert by_task["2wikimqa"].meta["length"] is None


def test_ids_are_the_rows_own_or_their_numbers(embedded):
    ids = [sample.id for sample in samples(embedded, tasks=["lcc", "multifieldqa_zh"])]
    assert ids == [
        "lcc:1",
        "lcc:2",
        "multifieldqa_zh:8414105f165ae3a956c95b69bb375252d9c7d5b442987af1",
        "multifieldqa_zh:e2ac2e89d5bbb92fa33c1cd2ee31eee105fba65d1e78dfd5",
    ]


def test_pyramidkvs_protocol_is_raw_text_without_a_stop_at_line_ends(embedded):
    legacy = samples(embedded, prompt_protocol="legacy_pyramidkv")
    official = samples(embedded)
    assert not any(sample.chat or sample.stop_at_newline for sample in legacy)
    assert all(sample.single_stop for sample in legacy) and not any(sample.single_stop for sample in samples(embedded))
    assert [sample.prompt for sample in legacy] == [sample.prompt for sample in official]


def test_a_seed_shuffles_rows_within_their_tasks_and_always_the_same(embedded, folder):
    row = json.loads((folder / "lcc.jsonl").read_text(encoding="utf-8").splitlines()[0]) | {"context": "a = 1\n"}
    many = "".join(json.dumps(row | {"_id": str(i)}) + "\n" for i in range(30))
    for task in ("lcc", "repobench-p"):
        (folder / f"{task}.jsonl").write_text(many)

    def order(seed):
        return [s.id for s in samples(embedded, tasks="code", data_dir=str(folder), seed=seed, max_length=64)]

    assert order(None) == [f"{task}:{i}" for task in ("lcc", "repobench-p") for i in range(30)]
    assert order(7) == order(7) != order(8)
    assert set(order(7)) == set(order(None))
    assert all(name.startswith("lcc:") for name in order(7)[:30])
    assert [name[-2:] for name in order(7)[:30]] != [name[-2:] for name in order(7)[30:]]


def test_the_data_hash_knows_rows_and_protocol(embedded, folder):
    before = data_hash(samples(embedded, data_dir=str(folder)))
    assert data_hash(samples(embedded)) == before
    assert data_hash(samples(embedded, prompt_protocol="legacy_pyramidkv")) != before
    rewrite(folder / "trec.jsonl", lambda row: row["all_classes"].pop())
    assert data_hash(samples(embedded, data_dir=str(folder))) != before


def test_longest_counts_the_longest_answer_among_the_tasks(embedded):
    assert benchmark(tasks="lcc", max_length=3500).longest == 3500 + 64 + 64
    assert benchmark(max_length=3500).longest == 3500 + 64 + 512 <= 4096
    for sample in samples(embedded):
        assert len(embedded.encode(sample.prompt, sample.chat)) + sample.max_new_tokens <= benchmark().longest


def test_scores_are_the_official_ones_with_google_rouge_beside_for_summaries(embedded):
    made = benchmark()
    by_task = {sample.meta["task"]: sample for sample in made.samples(embedded.tokenizer)}
    assert made.metrics == ("score", "rouge_score_l")
    assert benchmark(tasks=["lcc", "trec"]).metrics == ("score",)
    for task in ("qasper", "trec", "lcc", "passage_retrieval_zh"):
        assert made.score(by_task[task], by_task[task].answers[0]) == {"score": 1}
        assert made.score(by_task[task], "") == {"score": 0}
    summary = made.score(by_task["multi_news"], by_task["multi_news"].answers[0])
    assert summary == pytest.approx({"score": 1, "rouge_score_l": 1}, abs=1e-6)
    assert made.score(by_task["samsum"], "\n\n" + by_task["samsum"].answers[0] + "\nDialogue:")["score"] > 0.99


def test_a_wrong_setting_is_told_before_anything_is_read():
    for changes, message in {
        ("prompt_protocol", "legacy"): "Did you mean 'legacy_pyramidkv'",
        ("max_length", None): "benchmark.max_length=TOKENS",
        ("max_length", 1): "benchmark.max_length=1 must be an integer of at least 2 or null",
        ("seed", -1): "benchmark.seed=-1 must be an integer of at least 0 or null",
        ("tasks", "trecc"): "Did you mean 'trec'",
        ("tasks", ()): r"benchmark.tasks=\(\) must be a name or a list of names",
    }.items():
        with pytest.raises(UserError, match=message):
            benchmark(data_dir="/nowhere", **{changes[0]: changes[1]})


def test_another_matcher_is_refused_where_code_is_scored(monkeypatch):
    def refuse():
        raise UserError("fuzzywuzzy uses python-Levenshtein here")

    monkeypatch.setattr("kvbench.benchmarks.longbench.benchmark.check_backend", refuse)
    benchmark(tasks=["qasper"])
    with pytest.raises(UserError, match="python-Levenshtein"):
        benchmark(tasks=["qasper", "lcc"])


# --- LongBench-E


@pytest.fixture
def extended(folder) -> Path:
    for task in ("qasper", "lcc"):
        row = json.loads((folder / f"{task}.jsonl").read_text(encoding="utf-8").splitlines()[0])
        rows = [row | {"_id": None, "length": length} for length in (10, 3999, 4000, 7999, 8000, 30_000)]
        (folder / f"{task}_e.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_longbench_e_reads_its_own_files_and_knows_ranges_of_length(embedded, extended):
    made = benchmark(LongBenchE, tasks=["qasper", "lcc"], data_dir=str(extended))
    buckets = [sample.meta["bucket"] for sample in made.samples(embedded.tokenizer)]
    assert buckets == ["0-4k", "0-4k", "4-8k", "4-8k", "8k+", "8k+"] * 2
    assert made.name == "longbench_e"


def test_longbench_e_has_13_tasks_and_needs_every_length(extended):
    with pytest.raises(UserError, match="'narrativeqa'"):
        benchmark(LongBenchE, tasks="narrativeqa", data_dir=str(extended))
    with pytest.raises(UserError, match=r"has no file TASK_e\.jsonl of trec; .* found there: qasper, lcc$"):
        benchmark(LongBenchE, tasks=["qasper", "trec"], data_dir=str(extended))
    rewrite(extended / "lcc_e.jsonl", lambda row: row.update(length=None))
    with pytest.raises(UserError, match=r"lcc_e.jsonl, row 1: field 'length' is null, not a whole number"):
        benchmark(LongBenchE, tasks=["qasper", "lcc"], data_dir=str(extended))


# --- faults


FAULTS = {
    "missing field": ("qasper", lambda row: row.pop("answers"), "field 'answers' is missing"),
    "empty context": ("qasper", lambda row: row.update(context=" "), "field 'context' is empty"),
    "no answers": ("multi_news", lambda row: row.update(answers=[]), "field 'answers' is empty"),
    "classes left out": ("trec", lambda row: row.update(all_classes=None), "field 'all_classes' is null"),
    "length as text": ("samsum", lambda row: row.update(length="7"), "field 'length' is a text"),
    "unnamed paragraph": ("passage_retrieval_zh", lambda row: row.update(answers=["7"]), "answer '7' of a retrieval"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_any_file_is_told_with_file_and_row_when_the_benchmark_is_made(folder, fault):
    task, change, message = FAULTS[fault]
    rewrite(folder / f"{task}.jsonl", change)
    with pytest.raises(UserError) as told:
        benchmark(data_dir=str(folder))
    assert f"{task}.jsonl, row 1: {message}" in str(told.value)
    benchmark(data_dir=str(folder), tasks=[other for other in THERE if other != task])


def test_missing_files_are_told_with_what_is_there(folder):
    with pytest.raises(UserError, match=r"has no file TASK\.jsonl of hotpotqa, musique; .*: qasper, .*, lcc$"):
        benchmark(tasks=["lcc", "hotpotqa", "musique"])
    with pytest.raises(UserError, match=r"benchmark.data_dir='.*gone' is not a folder"):
        benchmark(data_dir=str(folder / "gone"))


# --- the hub


@pytest.fixture
def archive(tmp_path) -> Path:
    """A data.zip as the official one is laid out."""
    path = tmp_path / "data.zip"
    with zipfile.ZipFile(path, "w") as file:
        for task in THERE:
            file.write(ROWS / f"{task}.jsonl", f"data/{task}.jsonl")
        file.writestr("__MACOSX/data/._lcc.jsonl", "no rows")
        file.writestr("../../outside.jsonl", "{}")
    return path


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("KVBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_archive_is_unzipped_once_with_its_hash_beside(archive, cache, monkeypatch, embedded):
    calls = []
    monkeypatch.setattr(data, "_download", lambda *where: calls.append(where) or archive)
    made = benchmark(data_dir=None, repository="someone/LongBench", revision="main")
    assert made.samples(embedded.tokenizer) == samples(embedded)
    folder = data.from_hub("someone/LongBench", "main")
    archive.unlink()
    assert data.from_hub("someone/LongBench", "main") == folder
    assert calls == [("someone/LongBench", "main")]
    assert sorted(path.stem for path in folder.glob("*.jsonl")) == sorted([*THERE, "outside"])
    assert not list(cache.parent.glob("outside.jsonl"))
    assert len((folder / "data.zip.sha256").read_text().split()[0]) == 64
    assert [path.name for path in (cache / "longbench").iterdir()] == ["someone--LongBench@main"]


def test_an_archive_that_is_not_the_official_one_is_refused(archive, cache, monkeypatch):
    monkeypatch.setattr(data, "_download", lambda *where: archive)
    (revision, sha256), actual = next(iter(data.SHA256.items())), hashlib.sha256(archive.read_bytes()).hexdigest()
    with pytest.raises(UserError, match=f"SHA-256 {actual}, not {sha256}"):
        data.from_hub("zai-org/LongBench", revision)
    archive.write_bytes(archive.read_bytes()[:-40])
    with pytest.raises(UserError, match="is not a complete zip file"):
        data.from_hub("zai-org/LongBench", "main")
    assert not list((cache / "longbench").iterdir())


@pytest.mark.parametrize("offline", [True, False], ids=["offline mode", "no network"])
def test_without_the_hub_the_error_names_data_dir(cache, monkeypatch, offline):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    with pytest.raises(UserError, match=r"could not be fetched from .* benchmark.data_dir=FOLDER"):
        data.from_hub("nobody/LongBench", "0123456789")
