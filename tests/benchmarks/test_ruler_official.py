"""Samples equal those of the official generator byte for byte."""

import hashlib
import importlib.util
import json
import os
from pathlib import Path

import pytest

from kvbench.benchmarks import lm_eval_files
from kvbench.benchmarks.ruler import files, templates
from kvbench.benchmarks.ruler.generate import generate
from kvbench.benchmarks.ruler.templates import official_texts
from kvbench.errors import UserError
from tests.support.needs import needs
from tests.support.ruler_data import DATA, SQUAD, counter, inputs, rows

OFFICIAL = dict(reversed(line.split()) for line in (DATA / "official.sha256").read_text().splitlines())
SLICES = sorted(DATA.glob("[24]*/*/validation.jsonl"))


@pytest.fixture(scope="module")
def squad_part(tmp_path_factory) -> str:
    """The article that the official samples of qa_1 ask about, with stand-ins for the other 607 paragraphs.

    Their texts do not matter, for a prompt that takes in paragraphs of other articles is too long at 4096; their
    number does, for distractors are drawn by number.
    """
    data = json.loads(Path(SQUAD).read_text())
    others = [{"context": f"paragraph {i}", "qas": []} for i in range(646 - len(data["data"][0]["paragraphs"]))]
    data["data"].append({"title": "others", "paragraphs": others})
    path = tmp_path_factory.mktemp("squad") / "squad.json"
    path.write_text(json.dumps(data))
    return str(path)


@pytest.mark.parametrize("path", SLICES, ids=lambda path: f"{path.parts[-3]}-{path.parts[-2]}")
def test_first_samples_are_the_official_ones(path, embedded, squad_part):
    length, name = int(path.parts[-3]), path.parts[-2]
    official = rows(path)
    ours = list(generate(name, length, len(official), inputs(squad=squad_part), counter(embedded.tokenizer)))
    assert ours == official
    assert files.lines(ours) == path.read_text()


@pytest.mark.parametrize("file", OFFICIAL)
def test_whole_files_are_the_official_ones(file, embedded, squad_part):
    length, name, _ = file.split("/")
    made = generate(name, int(length), 5, inputs(squad=squad_part), counter(embedded.tokenizer))
    assert hashlib.sha256(files.lines(made).encode()).hexdigest() == OFFICIAL[file]


@needs("data", "" if "KVBENCH_DATA" in os.environ else "KVBENCH_DATA names no folder with the whole data")
@pytest.mark.parametrize("length", [2048, 4096])
def test_answers_on_squad_itself_are_the_official_ones(length, embedded):
    root = Path(os.environ["KVBENCH_DATA"]) / "ruler"
    made = generate(
        "qa_1",
        length,
        5,
        inputs(squad=str(root / "qa_sources" / "squad_dev-v2.0.cs224n.json")),
        counter(embedded.tokenizer),
    )
    official = root / "official" / f"{length}_seed42" / "qa_1" / "validation.jsonl"
    assert files.lines(made) == official.read_text()


def test_another_seed_gives_other_samples(embedded):
    first, second = (
        next(generate("niah_single_1", 1024, 1, inputs(seed=seed), counter(embedded.tokenizer))) for seed in (42, 43)
    )
    assert first["outputs"] != second["outputs"]


@pytest.fixture
def lm_eval(monkeypatch):
    """Puts a folder in the place of the installed lm-eval's tasks."""

    def install(folder: Path | None):
        official_texts.cache_clear()
        spec = importlib.util.spec_from_loader("lm_eval", None, is_package=True) if folder else None
        if spec:
            spec.submodule_search_locations[:] = [str(folder)]
        monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)

    yield install
    official_texts.cache_clear()


def test_texts_are_read_from_the_installed_package_and_hashed():
    texts = official_texts()
    assert {name: templates.sha256(text) for name, text in texts.items()} == templates.SHA256


def test_a_missing_lm_eval_is_told_with_the_command_that_installs_it(lm_eval):
    lm_eval(None)
    with pytest.raises(UserError, match=r"pip install --no-deps lm-eval==0\.4\.13"):
        official_texts()


def test_texts_that_are_not_the_official_ones_are_refused(lm_eval, tmp_path):
    tasks = tmp_path / "tasks" / "ruler"
    tasks.mkdir(parents=True)
    for file in lm_eval_files.lm_eval_tasks("ruler").glob("*.py"):
        text = file.read_text().replace("What are the 10 most common words", "What are the ten most common words")
        (tasks / file.name).write_text(text)
    lm_eval(tmp_path)
    with pytest.raises(UserError, match=r"does not hold the official RULER texts of cwe: pip install"):
        official_texts()
