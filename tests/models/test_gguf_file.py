"""A GGUF file as a model: converted once, named by what it stores, refused in one line."""

from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType

from kvbench.configuration import configured
from kvbench.engines.in_worker import model_path
from kvbench.errors import UserError
from kvbench.models import ModelSpec, gguf_file, load
from kvbench.models.folder import model_identity
from kvbench.models.load import load_texts, source_of
from kvbench.models.weights_format import manifest_fields
from kvbench.runner.outputs import run_caption
from kvbench.runner.prerequisites import check_machine
from tests.support.gguf_files import LAYERS, TOKENS, convolving, fields_of, small, write

KERNEL = "transformers.quantizers.quantizer_gguf.get_gguf_kernel"


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """A file with the beginning of the embedded model, under a name of its own."""
    return small(tmp_path_factory.mktemp("files") / "mine.gguf")


@pytest.fixture
def file(mine, tmp_path, monkeypatch):
    """That file, and an empty cache."""
    monkeypatch.setenv("KVBENCH_CACHE", str(tmp_path / "cache"))
    return mine


@pytest.mark.heavy
def test_a_file_gives_the_embedded_models_weights_with_its_format_and_is_converted_once(file, embedded, capfd):
    spec = ModelSpec("mine", path=str(file), device="cpu", dtype="float32")
    loaded = load(spec)
    assert capfd.readouterr().err.count("converting mine.gguf to safetensors") == 1
    weights = embedded.model.state_dict()
    converted = loaded.model.state_dict()
    assert loaded.config.num_hidden_layers == LAYERS and len(converted) > LAYERS * 9
    assert all(torch.equal(x, weights[name][: len(x)]) for name, x in converted.items())
    assert len(loaded.tokenizer.get_vocab()) == TOKENS
    assert manifest_fields(loaded.config) == {"weights_format": "Q4_1 GGUF"} and manifest_fields(embedded.config) == {}
    assert loaded.checkpoint_dtype is embedded.checkpoint_dtype is None  # float32 is the conversion's
    folder, _ = source_of(spec)
    assert load(replace(spec, path=folder)).checkpoint_dtype == "float32"
    identity = model_identity(folder, "main")
    assert identity["source"].startswith("mine-") and {"config.json", "model.safetensors"} <= {*identity["files"]}
    run = SimpleNamespace(loaded=loaded, benchmark=SimpleNamespace(name="niah"))
    assert run_caption(run, "") == "niah · mine (Q4_1 GGUF weights, float32)"
    texts = load_texts(spec)
    assert "converting" not in capfd.readouterr().err
    assert model_path(None, texts) == file.resolve()


@pytest.mark.heavy
def test_a_file_that_states_no_end_of_answers_says_which_token_ends_them(file, tmp_path, capfd):
    """Answers ended at the token 2 of transformers' class, whatever it is, in silence."""
    source = GGUFReader(file)
    fields = {name: field for name, field in fields_of(source).items() if name != "tokenizer.ggml.eos_token_id"}
    spec = ModelSpec("endless", path=str(write(tmp_path / "endless.gguf", fields, tensors_of(source))), device="cpu")
    told = (
        "endless states no token that ends an answer (tokenizer.ggml.eos_token_id): transformers takes 2 ('<|im_end|>')"
    )
    for read in (load, load_texts):
        assert read(spec).stop_tokens == {2}
        assert told in " ".join(capfd.readouterr().err.split())


@pytest.mark.heavy
def test_weights_are_unpacked_without_code_of_the_hub(file, tmp_path, monkeypatch):
    """Where the package `kernels` was installed, transformers fetched code for packed weights, which none can save."""
    fetched = []
    if find_spec(KERNEL.rpartition(".")[0]):  # of later versions
        monkeypatch.setattr(KERNEL, lambda: fetched.append("ggml-quantization"))
    packed = convolving(tmp_path / "convolving.gguf", file)
    loaded = load(ModelSpec("convolving", path=str(tmp_path / "convolving.gguf"), device="cpu", dtype="float32"))
    assert loaded.config.layer_types == ["conv", "full_attention"] and not fetched
    stored = loaded.model.model.layers[0].conv.in_proj.weight.detach().numpy()
    np.testing.assert_allclose(stored, packed["blk.0.shortconv.in_proj.weight"], atol=0.03)


@pytest.mark.heavy
def test_the_rotation_that_a_file_scales_is_scaled_in_its_folder(file, tmp_path):
    source = GGUFReader(file)
    scaling = {
        "llama.rope.scaling.type": ("linear", GGUFValueType.STRING),
        "llama.rope.scaling.factor": (8.0, GGUFValueType.FLOAT32),
    }
    scaled = write(tmp_path / "scaled.gguf", fields_of(source) | scaling, tensors_of(source))
    loaded = load(ModelSpec("scaled", path=str(scaled), device="cpu"))
    assert loaded.config.rope_parameters == {"rope_type": "linear", "rope_theta": 1e5, "factor": 8.0}


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("blk.1.ffn_up.weight", r"lacks model\.layers\.1\.mlp\.up_proj\.weight$"),
        ("blk.0.attn_q.bias", r"has no place in its configuration for blk\.0\.attn_q\.bias$"),
    ],
    ids=["missing", "without a place"],
)
def test_a_file_with_other_tensors_than_its_model_is_refused(file, tmp_path, name, message):
    source = GGUFReader(file)
    tensors = {tensor[0]: tensor for tensor in tensors_of(source)}
    if tensors.pop(name, None) is None:
        tensors[name] = (name, np.ones(576, dtype=np.float32), GGMLQuantizationType.F32)
    other = write(tmp_path / "other.gguf", fields_of(source), tensors.values())
    with pytest.raises(UserError, match=rf"transformers cannot convert .*other\.gguf: the file {message}"):
        gguf_file.gguf_folder(other)
    assert not [*tmp_path.rglob("config.json")]


def tensors_of(source: GGUFReader) -> list[tuple[str, np.ndarray, GGMLQuantizationType]]:
    return [(tensor.name, tensor.data, tensor.tensor_type) for tensor in source.tensors]


def test_a_file_on_the_command_line_is_named_after_itself(tmp_path):
    (tmp_path / "some-Q4_K_M.gguf").write_bytes(b"GGUF")
    cfg = configured([f"model={tmp_path}/some-Q4_K_M.gguf", "benchmark=niah"])
    assert (cfg.model.name, cfg.model.path) == ("some-Q4_K_M", f"{tmp_path}/some-Q4_K_M.gguf")
    check_machine(cfg)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.gguf", None, "cannot be read: No such file"),
        ("a.gguf", b"PK\3\4", "does not begin like a GGUF file"),
        ("a-00002-of-00003.gguf", b"GGUF", "is one of 3 parts, and a-00001-of-00003.gguf is not beside it"),
        ("a.gguf", b"GGUF\3\0\0\0", r"a\.gguf is no whole GGUF file: .* It has 8 bytes: was its download cut short\?"),
        ("a-00001-of-00001.gguf", b"GGUF\3\0\0\0", r"no whole GGUF file: .* It has 8 bytes"),
    ],
    ids=["missing", "another kind", "a part", "cut short", "a part cut short"],
)
def test_what_is_no_whole_file_is_one_line(tmp_path, monkeypatch, name, content, message):
    monkeypatch.setenv("KVBENCH_CACHE", str(tmp_path / "cache"))
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        gguf_file.gguf_folder(tmp_path / name)
    assert "\n" not in str(error.value) and not [*tmp_path.rglob("config.json")]


def test_a_part_that_is_cut_short_or_a_copy_of_another_is_named(file, tmp_path):
    content = file.read_bytes()
    first, second = (tmp_path / f"mine-{number:05}-of-00002.gguf" for number in (1, 2))
    first.write_bytes(content)
    second.write_bytes(content[: len(content) // 2])
    size = f"{len(content) // 2:,}"
    with pytest.raises(UserError, match=rf"mine-00002-of-00002\.gguf is no whole GGUF file: .* It has {size} bytes"):
        gguf_file.gguf_folder(first)
    second.write_bytes(content)
    with pytest.raises(
        UserError, match=r"mine-00002-of-00002\.gguf and mine-00001-of-00002\.gguf both have the tensor"
    ):
        gguf_file.gguf_folder(first)


def in_two_parts(file, folder):
    """Two files of the same tensors as one, of which the first is returned."""
    source = GGUFReader(file)
    tensors = tensors_of(source)
    write(folder / "it-00002-of-00002.gguf", {}, tensors[3:])
    return write(folder / "it-00001-of-00002.gguf", fields_of(source), tensors[:3])


def test_joined_parts_are_work_in_progress_that_the_next_conversion_finds(file, tmp_path, monkeypatch):
    """A killed conversion left a whole copy of the model in the cache, and each further one another."""

    def converts(gguf, folder, format):
        assert gguf == folder / "it.gguf" and gguf.is_file()
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr(gguf_file, "_convert", converts)
    folder = gguf_file.gguf_folder(in_two_parts(file, tmp_path))
    assert [path for path in (tmp_path / "cache" / "models").rglob("*") if path.is_file()] == [folder / "config.json"]


def test_a_disk_that_does_not_take_the_joined_parts_is_one_line(file, tmp_path, monkeypatch):
    (tmp_path / "no-folder").touch()
    monkeypatch.setenv("KVBENCH_CACHE", str(tmp_path / "no-folder" / "cache"))
    with pytest.raises(UserError, match=r"cannot write the converted model to .*KVBENCH_CACHE=FOLDER moves it"):
        gguf_file.gguf_folder(in_two_parts(file, tmp_path))


@pytest.mark.parametrize(
    ("stated", "format"),
    [
        ((3, GGUFValueType.UINT32), "Q4_1 GGUF"),
        ((999, GGUFValueType.UINT32), "TYPE_999 GGUF"),
        (("Q4", GGUFValueType.STRING), None),
        (None, None),
    ],
    ids=["known", "later", "text", "none"],
)
def test_a_file_type_that_gguf_does_not_know_refuses_no_file(tmp_path, stated, format):
    fields = {} if stated is None else {"general.file_type": stated}
    found = gguf_file.stored_in(write(tmp_path / "a.gguf", fields))
    assert found == format
    assert (
        manifest_fields(SimpleNamespace(weights_format=found, quantization_config=None)).get("weights_format") == format
    )


@pytest.mark.parametrize("heads", [0, 7])
def test_heads_that_make_no_model_are_one_line(file, tmp_path, heads):
    fields = fields_of(GGUFReader(file)) | {"llama.attention.head_count": (heads, GGUFValueType.UINT32)}
    other = write(tmp_path / "heads.gguf", fields)
    with pytest.raises(UserError, match=r"transformers cannot convert .*heads\.gguf: "):
        gguf_file.gguf_folder(other)


def test_tokens_that_make_no_tokenizer_are_one_line(file, tmp_path):
    """tokenizers raises `Exception` itself for a merge of tokens that it does not have: a traceback."""
    fields = fields_of(GGUFReader(file))
    fields["tokenizer.ggml.tokens"] = (fields["tokenizer.ggml.tokens"][0][:500], *fields["tokenizer.ggml.tokens"][1:])
    other = write(tmp_path / "tokens.gguf", fields)
    with pytest.raises(UserError, match=r"transformers cannot convert .*tokens\.gguf: .* out of vocabulary"):
        gguf_file.gguf_folder(other)
