"""Settings: a method with its parameters and a ratio or budget. A table has one row per setting."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, cast

from kvbench.configuration import Configuration
from kvbench.configuration.amounts import Amounts, amounts
from kvbench.errors import UserError
from kvbench.methods import Dense, FullKV, Method
from kvbench.methods.base.method import RATIOS_OF
from kvbench.methods.facts import Stated
from kvbench.prefill import Needs, PrefillPlan
from kvbench.records.identity import method_key
from kvbench.utils.hashing import file_hash
from kvbench.utils.places import names_file
from kvbench.utils.targets import DESCRIBING, TARGET, Find, build, class_of, imported
from kvbench.utils.versions import raised, versions

# Classes that have moved, with the name that is part of a record's key, so that records of earlier versions count.
RECORDED_AS = {"kvbench.integrations.kvpress.KVPress": "kvbench.guests.kvpress.KVPress"}


@dataclass(frozen=True)
class Setting:
    """One method at one ratio (share of the prompt's tokens) or budget (tokens per layer and head)."""

    name: str
    method: Method
    parameters: str  # the method's configuration as canonical JSON
    ratio: float | None = None
    budget: int | None = None

    @property
    def label(self) -> str:
        """The name with ratio or budget, as tables and figures show it; unique in a run."""
        if self.budget is not None:
            return f"{self.name} {self.budget}"
        quantity = "" if self.method.ratio_of == "prompt" else f" of {self.method.ratio_of}"
        return self.name if self.ratio is None else f"{self.name} {self.ratio:g}{quantity}"

    @property
    def key(self) -> str:
        """Everything a record depends on besides sample and model, and the name; part of the record's key."""
        return method_key(self.name, self.parameters, self.ratio, self.budget)

    def requested_tokens(self, n: int, new_tokens: int = 0) -> int | float:
        """Tokens per layer and head that the ratio or budget requests, with a prompt of n tokens.

        At most `new_tokens` are read after the prompt; they count if `method.ratio_of` is total.
        """
        if self.budget is not None:
            return self.budget
        tokens = n + new_tokens if self.method.ratio_of == "total" else n
        if self.method.takes_fractions and self.ratio is not None:
            return self.ratio * tokens
        return tokens if self.ratio is None else math.floor(self.ratio * tokens + 1e-9)  # 1e-9: float noise on integers

    def budget_at(self, n: int, num_layers: int, new_tokens: int = 0) -> int | float:
        """The budget given to the method: `requested_tokens`, but at least the method's floor for such a prompt.

        num_layers: number of compressed layers. Raises UserError if there is none, except for FullKV.
        """
        if not num_layers and not is_full(self):
            raise UserError(
                f"{self.label} has nothing to compress: every layer of this model has a sliding window, which a prompt "
                f"of {n} tokens fills (method=full reads it)"
            )
        floor: object = self.method.floor(n, num_layers)
        if isinstance(floor, bool) or not isinstance(floor, Real):
            raise UserError(f"method {self.name!r}: its floor is {floor!r}, and must be a number of tokens")
        return max(self.requested_tokens(n, new_tokens), cast(float, floor))

    def plan(self, n: int, num_layers: int) -> PrefillPlan:
        """The prefill of a prompt of n tokens for this setting; settings with an equal plan share it."""
        return self.method.plan(n, num_layers, self.budget_at(n, num_layers))

    def floored(self, n: int, num_layers: int, new_tokens: int = 0) -> bool:
        """Whether the method's floor raised the requested budget."""
        return self.budget_at(n, num_layers, new_tokens) > self.requested_tokens(n, new_tokens)


def settings_of(cfg: Configuration) -> list[Setting]:
    """The settings that a configuration requests of its methods. Raises UserError for a bad value, and for a press that
    no method takes."""
    nodes = [node for node in cfg.methods.values() if isinstance(node, Mapping)]
    for key, value in {"press": cfg.press, "press_args": cfg.press_args}.items():
        if value is not None and not any(key in node for node in nodes):
            raise UserError(f"{key}={value} is for method=kvpress, which is not chosen")
    return _settings(cfg.methods, cfg.amounts, cfg.decode.compress)


def build_settings(
    methods: Mapping[str, Mapping[str, Any]],
    ratio: object,
    budget: object,
    compress: Mapping[str, Any] | None = None,
    find: Find = imported,
) -> list[Setting]:
    """Every method at every ratio or budget, or at its configuration's own; FullKV once.

    `compress` is the configuration's decode.compress: the decode_compression of every method without its own,
    except FullKV. `find` looks up the names of classes. Raises UserError for a bad value.
    """
    return _settings(methods, amounts(ratio, budget), compress, find)


def _settings(
    methods: Mapping[str, Mapping[str, Any]], shared: Amounts, compress: Mapping[str, Any] | None, find: Find = imported
) -> list[Setting]:
    chosen = named(methods)
    for name, config in chosen.items():
        _refuse_part(name, config, find)
    if compress is not None:
        chosen = while_decoding(chosen, compress, find)
    return [setting for name, config in chosen.items() for setting in _of_method(name, {**config}, shared, find)]


def _refuse_part(name: str, config: Mapping[str, Any], find: Find) -> None:
    """Raise UserError for a parameter in the place of a method: `method.scoring=` for `method.NAME.scoring=`."""
    place = f"a parameter of the method NAME is method.NAME.{name}="
    if TARGET not in config:
        raise UserError(f"method {name!r} has no {TARGET}: its YAML must name a class; {place}")
    try:
        kind = class_of(config, f"method {name!r}", Stated, find=find)
    except UserError:
        return  # building it says why
    if not issubclass(kind, Method):
        raise UserError(f"method.{name}: {config[TARGET]} is a part of a method, and no method: {place}")


def while_decoding(
    methods: Mapping[str, Mapping[str, Any]], compress: Mapping[str, Any], find: Find = imported
) -> dict[str, Mapping[str, Any]]:
    """The methods with decode.compress as their decode_compression. UserError for one that cannot have it."""
    node = {"_target_": "kvbench.methods.DecodeCompression", **compress}
    compressing = {}
    for name, config in methods.items():
        kind = class_of(config, f"method {name!r}", Method, find=find)
        if issubclass(kind, FullKV) or config.get("decode_compression") is not None:
            compressing[name] = config
        elif "decode_compression" in getattr(kind, "__dataclass_fields__", {}):
            compressing[name] = {**config, "decode_compression": node}
        else:
            raise UserError(
                f"decode.compress={json.dumps(compress)}: method {name!r} does not compress while decoding: leave one "
                "of the two out"
            )
    return compressing


def _of_method(name: str, config: dict[str, Any], shared: Amounts, find: Find) -> list[Setting]:
    """One method at its own ratios or budgets, or at the ratios or budgets of all methods."""
    config = {key: value for key, value in config.items() if key not in DESCRIBING}
    own_amounts = (config.pop("ratio", None), config.pop("budget", None))
    method = build(config, f"method {name!r}", Method, find)
    _check_stated(name, method)
    name, parameters = method.title(name), recorded_parameters(config, method)
    if not method.takes_budget:
        if own_amounts != (None, None):
            raise UserError(f"method {name!r} takes neither ratio nor budget")
        return [Setting(name, method, parameters)]
    return at_amounts(name, method, parameters, shared if own_amounts == (None, None) else amounts(*own_amounts))


def _check_stated(name: str, method: Method) -> None:
    """Raise UserError for what a method states of itself that is no such thing; its class may be the user's."""
    least: object = method.minimum_budget
    if not isinstance(least, Integral) or least < 1:
        raise UserError(f"method {name!r}: minimum_budget={least!r} must be an integer of at least 1")
    needs: object = method.needs
    if not isinstance(needs, Needs):
        raise UserError(f"method {name!r}: needs={needs!r} must be a Needs, such as Needs(window=32)")
    if method.ratio_of not in RATIOS_OF:
        raise UserError(f"method {name!r}: ratio_of={method.ratio_of!r} must be one of {', '.join(RATIOS_OF)}")


def at_amounts(name: str, method: Method, parameters: str, chosen: Amounts) -> list[Setting]:
    """A method at each ratio or budget. Raises UserError for a budget below the least that it takes."""
    for value in chosen.budgets:
        if value < method.minimum_budget:
            raise UserError(
                f"budget {value} is too small for {name!r}: it always keeps {method.minimum_budget - 1} "
                f"tokens (window or sinks), so at least {method.minimum_budget} are needed"
            )
    return [
        *(Setting(name, method, parameters, ratio=r) for r in chosen.ratios),
        *(Setting(name, method, parameters, budget=b) for b in chosen.budgets),
    ]


def recorded_parameters(config: Mapping[str, Any], method: Method) -> str:
    """A method's configuration as canonical JSON, with the versions above 1 of the method and its parts."""
    return json.dumps(as_recorded(config) | raised(versions(method)), sort_keys=True)


def as_recorded(config: Mapping[str, Any]) -> dict[str, Any]:
    """A method's configuration under the names that records have for its classes, and with its files' hashes.

    A key that ends in `_file` names a file: its place may change, but not its contents. What the file of a part says of
    itself is no parameter of the part.
    """
    return _hashed({**config, "_target_": RECORDED_AS.get(config["_target_"], config["_target_"])})


def _hashed(config: Mapping[str, Any]) -> dict[str, Any]:
    hashed = dict(config)
    for key, value in config.items():
        if isinstance(value, Mapping) and TARGET in value:
            hashed[key] = _hashed({name: inner for name, inner in value.items() if name not in DESCRIBING})
        elif isinstance(value, Mapping):
            hashed[key] = _hashed(value)
        elif names_file(key) and isinstance(value, str):
            hashed[key] = f"sha256:{file_hash(Path(value))}"
    return hashed


def named(methods: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The configured methods by name. `method._target_=module.Class` adds that class under its own name, with the
    plain values beside `_target_` as its arguments.
    """
    chosen = {name: value for name, value in methods.items() if isinstance(value, Mapping)}
    inline = {key: value for key, value in methods.items() if not isinstance(value, Mapping)}
    if (target := methods.get("_target_")) is not None:
        if not isinstance(target, str) or "." not in target:
            raise UserError(f"method._target_={target!r} must be a class as module.Class")
        chosen[target.rpartition(".")[2]] = inline
    elif extra := set(inline) - {"_target_"}:
        raise UserError(f"method.{sorted(extra)[0]}= needs method._target_=module.Class, or method.NAME.KEY=")
    return chosen


def is_full(setting: Setting) -> bool:
    """Whether the setting is FullKV itself; all tokens in another storage (KIVI, say) are a different method."""
    return type(setting.method) is FullKV and type(setting.method.storage) is Dense
