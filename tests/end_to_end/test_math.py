"""AIME from the command's configuration to tables: drawn answers, on a tiny model and problems of our own."""

from kvbench.metrics.math_answers import integer_score
from kvbench.records import load
from tests.support import math_problems as made
from tests.support.runs import reported


def test_aime_from_problems_to_scores(tiny_folder, tmp_path, monkeypatch):
    files = [f"benchmark.{key}={value}" for key, value in made.places(tmp_path, monkeypatch).items()]
    small = [f"model.path={tiny_folder}", "model.shape=null", "model.max_length=4096", "benchmark.max_new_tokens=6"]
    chosen = ["benchmark=aime", "benchmark.repeats=3", "method=[full,snapkv_decode]", "ratio=0.5", "decode.batch=4"]
    folder = reported(*small, *files, *chosen, f"output_dir={tmp_path / 'runs'}")
    records = load(folder)
    assert len(records) == 4 * 3 * 2
    seeds = records["sampling"].map(lambda sampling: sampling["seed"])
    assert seeds.groupby(records["sample"]).nunique().eq(1).all()  # the same for both settings
    assert seeds.nunique() == 12
    for record in records.to_dict("records"):
        assert record["scores"] == integer_score(record["prediction"], record["answers"][0])
    table = (folder / "tasks.md").read_text()
    assert all(text in table for text in ("aime24 avg@3", "aime25 pass@3", "aime24 tokens of an answer"))
