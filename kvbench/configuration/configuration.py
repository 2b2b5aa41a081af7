"""The configuration as a typed object, parsed once after conf/ and the command line are composed."""

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal, Self

from pydantic import PlainValidator

from kvbench.configuration.amounts import Amounts, Budget, Ratio, amounts
from kvbench.configuration.experiment import Experiment
from kvbench.configuration.kinds import (
    NODE,
    NULL,
    WORD,
    CountOrNull,
    Node,
    NodeOrNull,
    Shards,
    Single,
    Text,
    TextOrNull,
    of_kind,
)
from kvbench.configuration.model_spec import ModelSpec, model_spec
from kvbench.configuration.sections import Decode, Prefill, Wandb, check_keys, section
from kvbench.errors import UserError, unknown
from kvbench.utils.checked import check_given, checked
from kvbench.utils.interpolations import check_resolved

DIGITS = 18  # of a whole number at most, so that it fits into 64 bits
UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def _model(value: object) -> ModelSpec:
    return value if isinstance(value, ModelSpec) else model_spec(of_kind(NODE, NULL)(value))


def _experiment(value: object) -> Experiment | None:
    return value if isinstance(value, Experiment) else Experiment.from_section(of_kind(NODE, NULL)(value))


def _distance(value: object) -> Literal["auto"] | bool:
    word = str(value).lower() if isinstance(value, bool) else str(value)
    if word not in ("auto", "true", "false"):
        raise unknown("distance", word, ("auto", "true", "false"))
    return "auto" if word == "auto" else word == "true"


@checked(frozen=True)
class Configuration:
    """A command's configuration. conf/config.yaml explains each key beside its default.

    `method`, `probe`, `engine` and `benchmark` hold the parameters of classes, whose signatures define them: these
    sections stay mappings, and are checked where the classes are built.
    """

    plain: dict[str, Any]  # as composed, with the user's own keys; manifests record it
    ratio: Ratio
    budget: Budget
    method: Node
    press: TextOrNull
    press_args: NodeOrNull
    probe: Node
    limit: CountOrNull
    question: Annotated[Literal["visible", "hidden"], WORD]
    first_token: Annotated[Literal["full", "compressed"], WORD]
    memory: Annotated[Literal["shared", "stream"], WORD]
    distance: Annotated[Literal["auto"] | bool, PlainValidator(_distance)]
    kernels: Annotated[Literal["auto", "torch", "triton"], WORD]
    prefill: Annotated[Prefill, section(Prefill, "prefill.")]
    decode: Annotated[Decode, section(Decode, "decode.")]
    wandb: Annotated[Wandb, section(Wandb, "wandb.")]
    shards: Shards
    shard: Annotated[Single, "integer from 0 to shards − 1"]
    experiment: Annotated[Experiment | None, PlainValidator(_experiment)]
    engine: NodeOrNull
    output_dir: Text
    model: Annotated[ModelSpec, PlainValidator(_model)]
    benchmark: Node

    def __post_init__(self) -> None:
        amounts(self.ratio, self.budget)
        if isinstance(self.shard, bool) or not isinstance(self.shard, int) or not 0 <= self.shard < self.shards:
            raise UserError(f"shard={self.shard} must be from 0 to {self.shards - 1} with shards={self.shards}")
        if (self.question, self.first_token) == ("hidden", "compressed"):
            raise UserError(
                "question=hidden reads every first token through the compressed cache: leave first_token out"
            )
        if self.probe and self.first_token == "compressed":
            raise UserError("probe= observes prompts and compresses nothing: leave first_token=compressed out")

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """The parsed form of a composed configuration. Raises UserError with the first mistake found."""
        _check_values(plain)
        check_resolved(plain)
        for group in ("model", "benchmark"):
            if not plain.get(group):  # ~model
                raise UserError(f"no {group} is chosen: {group}=NAME")
        check_keys(cls, {"plain": plain, **plain})
        return cls(plain={**plain}, **{key: value for key, value in plain.items() if key in KEYS})

    def changed(self, **values: object) -> Self:
        """The configuration with other values of some keys, in YAML's form."""
        return self.from_plain({**self.plain, **values})

    @property
    def amounts(self) -> Amounts:
        """The ratios or budgets of methods without their own."""
        return amounts(self.ratio, self.budget)

    @property
    def methods(self) -> dict[str, Any]:
        """The methods of the run, see `chosen_methods`."""
        return chosen_methods(self.method, self.experiment)


def chosen_methods(method: Mapping[str, Any], experiment: object) -> dict[str, Any]:
    """The methods of a section `method`, without the parameters of an experiment's methods that the run leaves out.

    `+experiment=… method=[full,snapkv]` drops the files of the experiment's other methods, but not the parameters that
    the experiment sets for them.
    """
    if experiment is None:
        return dict(method)
    return {name: node for name, node in method.items() if not isinstance(node, Mapping) or "_target_" in node}


KEYS = frozenset(item.name for item in fields(Configuration)) - {"plain"}
SECTIONS: dict[str, type[Any]] = {"prefill": Prefill, "decode": Decode, "wandb": Wandb}
# Keys whose value is the name of a file on the command line, and the file's contents in the composed configuration.
GROUPS = frozenset({"method", "model", "benchmark", "probe", "engine", "experiment"})


def every_key() -> list[str]:
    """All keys as on the command line, with keys of sections after a dot."""
    inside = [f"{name}.{item.name}" for name, form in SECTIONS.items() for item in fields(form)]
    return sorted([*KEYS, *inside])


def check_some(values: Mapping[str, object]) -> None:
    """Check values by their dotted keys, each separately. Raises UserError for the first mistake."""
    amounts(values.get("ratio"), values.get("budget"))
    check_given(Configuration, {key: value for key, value in values.items() if key in KEYS - GROUPS - {*SECTIONS}})
    for name, form in SECTIONS.items():
        keys = [item.name for item in fields(form) if f"{name}.{item.name}" in values]
        check_given(form, {key: values[f"{name}.{key}"] for key in keys}, f"{name}.")


def _check_values(node: object, path: str = "") -> None:
    """Refuse numbers beyond 64 bits, and texts with a NUL or a surrogate (from bytes that are not UTF-8), which neither
    file names nor JSON can hold.
    """
    if isinstance(node, Mapping):
        for key, value in node.items():
            _check_values(value, f"{path}.{key}".lstrip("."))
    elif isinstance(node, list | tuple):
        for value in node:
            _check_values(value, path)
    elif isinstance(node, int) and not -(10**DIGITS) < node < 10**DIGITS:
        raise UserError(f"{path}: a whole number has at most {DIGITS} digits, not {len(str(abs(node)))}")
    elif isinstance(node, str) and UNSTORABLE.search(node):
        raise UserError(
            f"{path}={node!a} has a NUL or bytes that are not UTF-8, which no file's name or record can have"
        )
