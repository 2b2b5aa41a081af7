"""LongBench from the command's configuration to tables, on a tiny model and a few real rows."""

import json
from pathlib import Path

import pandas as pd
import pytest

from kvbench.benchmarks import Benchmark, LongBench, LongBenchE
from kvbench.configuration.conf import CONF, options
from kvbench.errors import UserError
from kvbench.metrics.longbench import score
from kvbench.records import load
from kvbench.utils.targets import build
from kvbench.utils.yaml_files import read_yaml
from tests.support.paths import DATA
from tests.support.runs import compose, reported, run

ROWS = DATA / "longbench"
TASKS = ["2wikimqa", "samsum", "trec", "lcc", "multifieldqa_zh"]


def arguments(model: Path, out: Path, *more: str) -> list[str]:
    return [
        f"model.path={model}",
        "model.shape=null",
        "model.max_length=4096",
        "benchmark=longbench",
        f"benchmark.data_dir={ROWS}",
        "benchmark.max_length=128",
        f"benchmark.tasks=[{','.join(TASKS)}]",
        "method=[full,snapkv]",
        "ratio=0.4",
        f"output_dir={out}",
        *more,
    ]


@pytest.fixture(scope="module")
def folder(tiny_folder, tmp_path_factory) -> Path:
    return reported(*arguments(tiny_folder, tmp_path_factory.mktemp("longbench")))


def test_a_record_holds_what_scores_it_again(folder):
    records = load(folder)
    assert len(records) == 8 * 2
    assert records["task"].unique().tolist() == TASKS
    for record in records.to_dict("records"):
        again = score(record["task"], record["prediction"], record["answers"], record["all_classes"])
        assert record["scores"]["score"] == again
        assert set(record["scores"]) == {"score"} | ({"rouge_score_l"} if record["task"] == "samsum" else set())
        assert record["prompt_tokens"] <= 128 + 64
    assert records[records.task == "lcc"]["metric_backend"].eq("difflib").all()


def test_a_run_leaves_a_table_by_task_beside_the_main_one(folder):
    lines = (folder / "tasks.md").read_text().splitlines()
    assert "| task | samples | FullKV | SnapKV 0.4 |" in lines
    first = [line.split(" | ")[0].strip("| ") for line in lines if line.startswith("|")][2:]
    assert first == ["multifieldqa_zh", "2wikimqa", "trec", "samsum", "lcc", "few_shot (2 of 4)", "average of 5 tasks"]
    assert "rouge_score_l" in (folder / "table.md").read_text()
    (path,) = (folder / "manifests").iterdir()
    assert json.loads(path.read_text())["config"]["benchmark"]["max_length"] == 128


def test_the_question_can_be_hidden_and_a_limit_is_for_each_task(tiny_folder, tmp_path):
    hidden = reported(*arguments(tiny_folder, tmp_path, "question=hidden", "limit=1", "method=full"))
    records = load(hidden)
    assert records["task"].tolist() == TASKS
    assert records["question"].eq("hidden").all()
    assert "question hidden" in (hidden / "tasks.md").read_text()


def test_a_fault_in_the_data_leaves_nothing_half_run(tiny_folder, tmp_path):
    for name in ("2wikimqa", "trec"):
        (tmp_path / f"{name}.jsonl").write_bytes((ROWS / f"{name}.jsonl").read_bytes())
    with (tmp_path / "trec.jsonl").open("a") as file:
        file.write('{"input": \n')
    out = tmp_path / "runs"
    with pytest.raises(UserError, match=r"trec.jsonl, row 2: broken JSON"):
        run(*arguments(tiny_folder, out, f"benchmark.data_dir={tmp_path}", "benchmark.tasks=[2wikimqa,trec]"))
    assert not out.exists()


def test_longbench_e_has_a_mean_for_every_range_of_length(tiny_folder, tmp_path):
    for task in ("qasper", "trec"):
        row = json.loads((ROWS / f"{task}.jsonl").read_text(encoding="utf-8").splitlines()[0])
        rows = [row | {"_id": None, "length": length} for length in (100, 5000, 9000)]
        (tmp_path / f"{task}_e.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = ["benchmark=longbench_e", f"benchmark.data_dir={tmp_path}", "benchmark.tasks=[qasper,trec]", "method=full"]
    folder = reported(*arguments(tiny_folder, tmp_path / "runs", *more))
    assert folder.name.startswith("longbench_e-")
    lines = (folder / "tasks.csv").read_text().splitlines()
    assert [line.split(",")[1] for line in lines[1:]] == [
        *("qasper 0-4k", "trec 0-4k", "qasper 4-8k", "trec 4-8k", "qasper 8k+", "trec 8k+"),
        *("0-4k (2 of 13)", "4-8k (2 of 13)", "8k+ (2 of 13)"),
    ]


@pytest.mark.parametrize(("benchmark", "expected"), [(LongBench, 12.35), (LongBenchE, 12.34)])
def test_the_table_rounds_a_tie_as_eval_py_does(benchmark, expected):
    one = {"task": "qasper", "bucket": "0-4k", "setting": "full", "sample": "a", "scores": {"score": 0.12345}}
    assert benchmark.breakdown(None, pd.DataFrame([one]))["full"].iloc[0] == expected


# --- configuration


def config(*overrides: str) -> dict:
    return compose("benchmark=longbench", *overrides).benchmark


@pytest.mark.parametrize(
    "model, official, legacy",
    [
        ("llama2-7b-chat", 3500, 3950),
        ("llama3-8b", 7500, 7950),
        ("mistral-7b-v0.2", 31500, 31500),
        ("mistral-7b-v0.3", 31500, 31500),
        ("qwen2.5-3b", 31500, None),
        ("smollm2-135m", 7500, 7950),
    ],
)
def test_the_prompts_length_is_the_published_one_of_the_model_and_protocol(model, official, legacy):
    assert config(f"model={model}")["max_length"] == official
    assert config(f"model={model}", "benchmark.prompt_protocol=legacy_pyramidkv")["max_length"] == legacy
    assert config(f"model={model}", "benchmark.max_length=1000")["max_length"] == 1000


def test_every_model_has_room_for_its_prompts_and_longest_answers():
    """One of those that agree in both lengths."""
    models = {}
    for model in set(options("model")) - {"llama3-8b-random", "hf"}:  # nothing is published for them: see the next test
        file = read_yaml(CONF / "model" / f"{model}.yaml")
        models[str((file["max_length"], file["longbench_max_length"]))] = model
    assert len(models) > 5
    for model in models.values():
        cfg = compose(
            "benchmark=longbench", f"model={model}", f"benchmark.data_dir={ROWS}", "benchmark.tasks=multi_news"
        )
        assert build(cfg.benchmark, "benchmark", Benchmark).longest <= cfg.model.max_length


def test_a_model_without_a_published_length_wants_one():
    rows = f"benchmark.data_dir={ROWS}", "benchmark.tasks=multi_news"
    with pytest.raises(
        UserError, match=r"LongBench publishes no prompt length for this model .* benchmark.max_length="
    ):
        build(config("model=llama3-8b-random", *rows), "benchmark", Benchmark)
    assert (
        build(config("model=llama3-8b-random", *rows, "benchmark.max_length=900"), "benchmark", Benchmark).longest
        >= 900
    )


def test_tasks_are_named_on_the_command_line_as_one_or_a_list():
    assert config("benchmark.tasks=2wikimqa")["tasks"] == "2wikimqa"
    assert config("benchmark.tasks=[2wikimqa,repobench-p,few_shot]")["tasks"] == ["2wikimqa", "repobench-p", "few_shot"]


def test_a_wrong_protocol_is_told_though_no_length_belongs_to_it():
    with pytest.raises(UserError, match="Did you mean 'legacy_pyramidkv'"):
        build(config("benchmark.prompt_protocol=legacy"), "benchmark", Benchmark)
