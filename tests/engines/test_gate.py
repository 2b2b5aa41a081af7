"""The gate of docs/engines.md, as a workflow outside of a checkout runs it: kvbench from its wheel, one command a step.

A worker stands for llama.cpp, whose q4_0 answers with other tokens.
"""

import json
import shlex
import zipfile

import pytest
import yaml
from hatchling.builders.wheel import WheelBuilder

from tests.support.interpreter import in_one_interpreter
from tests.support.paths import ROOT

ANSWER = " does" * 4  # the worker's, of tokens of the tiny model


def steps(tiny_folder) -> tuple[list[str], list[str]]:
    """The arguments of the example's two commands: the run, and what its records are judged by."""
    (example,) = (part for part in (ROOT / "docs" / "engines.md").read_text().split("```yaml\n") if "kv-types:" in part)
    (job,) = yaml.safe_load(example.partition("```")[0])["jobs"].values()
    run, compare = (shlex.split(step["run"]) for step in job["steps"] if "bin/kvbench " in step.get("run", ""))
    model = [f"model.path={tiny_folder}", "model.shape=null"]
    return [word for word in run[1:] if word != "model=org/name"] + model, compare[1:]


@pytest.mark.slow
def test_the_gate_passes_a_good_type_and_stops_a_bad_one_and_too_few_prompts(tiny_folder, tmp_path, environment):
    installed = tmp_path / "installed"
    with zipfile.ZipFile(next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))) as wheel:
        wheel.extractall(installed)
    environment("types").rename(tmp_path / ".venv-llama")
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    row = {"question": "Was it?", "answers": [ANSWER], "max_new_tokens": 4}
    # texts of their own: questions of one text are one unit
    texts = [{"id": f"{number}", "context": f"It was written down {number} times."} for number in range(64)]
    rows = [json.dumps(row | text) + "\n" for text in texts]
    (tmp_path / "prompts.jsonl").write_text("".join(rows))
    run, compare = steps(tiny_folder)
    assert compare[:2] == ["compare", "runs"] and "engine.k=[f16,q8_0]" in run
    bad = [word.replace("q8_0", "q4_0").replace("=runs", "=bad") for word in run]
    few = [*(word.replace("=runs", "=few") for word in run), "limit=8"]
    judged = [[folder if word == "runs" else word for word in compare] for folder in ("runs", "bad", "few")]
    ends = in_one_interpreter(run, judged[0], bad, judged[1], few, judged[2], cwd=tmp_path, PYTHONPATH=str(installed))
    assert [end.code for end in ends] == [0, 0, 0, 1, 0, 3], [(end.out, end.err) for end in ends]
    assert "64 of 64" in ends[1].out and "within" in ends[1].out
    assert "the margin of 0.05 is not kept by llama_cpp q4_0/q4_0" in ends[3].out
    assert "the share of equal answers of 0.8 is not kept by llama_cpp q4_0/q4_0" in ends[3].out
    assert "llama_cpp q8_0/q8_0, over 8 units: a margin of 0.05 takes about 61" in ends[5].out
