"""The description of a model in conf/model, checked without torch before anything is loaded."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator

from kvbench.errors import UserError
from kvbench.utils.checked import Positive, checked
from kvbench.utils.model_shape import model_shape

if TYPE_CHECKING:
    import torch

# Parameters of apply_chat_template itself, which kvbench sets; every other argument reaches the template.
OWN_ARGUMENTS = frozenset(
    "add_generation_prompt chat_template continue_final_message conversation max_length padding "
    "return_assistant_tokens_mask return_dict return_tensors sanitize_control_tokens self tokenize tokenizer_kwargs "
    "truncation".split()
)
# Kinds of devices that torch.device knows.
DEVICES = (
    "cpu cuda ipu xpu mkldnn opengl opencl ideep hip ve fpga maia xla lazy vulkan mps meta hpu mtia "
    "privateuseone".split()
)
_DEVICE = re.compile(rf"({'|'.join(DEVICES)})(:(0|[1-9]\d*))?", re.ASCII)
# Arguments of from_pretrained that other keys set, or that would load other weights than those that are hashed.
SET_BY_KVBENCH = frozenset(
    "adapter_kwargs attn_implementation cache_dir code_revision config device_map dtype force_download gguf_file "
    "ignore_mismatched_sizes local_files_only output_loading_info pretrained_model_name_or_path proxies revision "
    "state_dict subfolder token torch_dtype trust_remote_code use_safetensors variant weights_only".split()
)


def _device(name: str) -> str:
    # only the syntax: whether the device exists is known on the machine that loads the model
    if name != "auto" and not _DEVICE.fullmatch(name):
        raise ValueError("auto or a device of torch: cpu, cuda or cuda:0")
    return name


def _without(names: frozenset[str], form: str) -> AfterValidator:
    """A validator that refuses arguments with these names; `form` names the kind of arguments in its message."""

    def check(arguments: dict[str, Any]) -> dict[str, Any]:
        if refused := [name for name in arguments if name in names]:
            raise ValueError(f"{form}, which {refused[0]!r} is not")
        return arguments

    return AfterValidator(check)


def _stop_tokens(tokens: list[Any]) -> list[int | str]:
    if not tokens or not all(type(token) in (int, str) for token in tokens):
        raise ValueError("a list of tokens, each a text or a number")
    return tokens


Device = Annotated[str, AfterValidator(_device)]
Shape = Annotated[dict[str, int], AfterValidator(model_shape)]
LoadArgs = Annotated[dict[str, Any], _without(SET_BY_KVBENCH, "arguments of from_pretrained that kvbench leaves free")]
StopTokens = Annotated[list[Any], AfterValidator(_stop_tokens)]
TemplateArgs = Annotated[dict[str, Any], _without(OWN_ARGUMENTS, "variables of the chat template")]


@checked(prefix="model.", frozen=True)
class ModelSpec:
    """A model as conf/model describes it."""

    name: str
    # context limit in tokens, prompt and answer together; None: max_position_embeddings of the model's configuration
    max_length: Positive | None = None
    hub_id: str | None = None
    revision: str = "main"
    path: str | None = None  # a local folder in the hub's layout, or a GGUF file; wins over hub_id
    shape: Shape | None = None  # layers, heads and vocabulary that the loaded network must have
    parameters: Positive | None = None  # of the network; estimates of an experiment's cost read it
    embedded: str | None = None  # a Python package that ships the model as GGUF
    random: dict[str, Any] | None = None  # a configuration to draw weights for; the other three then name a tokenizer
    chat_template: Literal["auto", "none"] = "auto"  # auto: the tokenizer's own if there is one; none: raw text
    template_args: TemplateArgs | None = None  # of the chat template: enable_thinking, date_string, …
    stop_tokens: StopTokens | None = None  # ids or texts of tokens that end an answer, besides the model's own
    load_args: LoadArgs | None = None  # of from_pretrained: quantization_config, rope_parameters, …
    # auto: float32 on a CPU, the checkpoint's on a GPU
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    device: Device = "auto"
    device_map: str | None = None  # "auto" spreads a model over several GPUs
    lazy_threshold: float | None = None  # SimLayerKV's delta; only its YAML reads it
    longbench_max_length: dict[str, int] | None = None  # by prompt_protocol; only LongBench's YAML reads it

    def __post_init__(self) -> None:
        if not (self.path or self.hub_id or self.embedded):
            raise UserError(f"model {self.name!r} has none of path, hub_id and embedded")
        if self.random is not None and (self.load_args or self.max_length is None):
            problem = "takes no model.load_args" if self.load_args else "needs model.max_length"
            raise UserError(f"model {self.name!r} has random weights and {problem}")

    def resolve_device(self) -> str:
        import torch

        if self.device != "auto":
            return self.device
        return "cuda" if torch.cuda.is_available() else "cpu"

    def resolve_dtype(self) -> "torch.dtype | str":
        import torch

        if self.dtype != "auto":
            return getattr(torch, self.dtype)
        return torch.float32 if self.resolve_device() == "cpu" else "auto"


def model_spec(node: Mapping[str, Any]) -> ModelSpec:
    """The model of a configuration's `model` section. Raises UserError for an unknown or missing key and a bad value.

    A folder is not read: it may be on another machine.
    """
    if not node.get("name"):
        raise UserError("model=hf needs a model: model=org/name on the hub, or model=/folder or /file.gguf")
    return ModelSpec(**{key: value for key, value in node.items() if key != "about"})
