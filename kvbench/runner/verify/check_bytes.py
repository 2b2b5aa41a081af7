"""Whether r and r_bytes are possible for the model's shape, the tokens that layers kept, and the storage."""

import json
import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from statistics import fmean
from typing import Any

from kvbench.cache.kept_positions import LEVELS, decode, edges
from kvbench.evaluation.settings import Setting
from kvbench.methods import Method
from kvbench.methods.storage.base import KeptLayer
from kvbench.records.identity import is_full_record, setting_hash
from kvbench.records.recorded_configuration import recorded
from kvbench.runner.verify.check_code import preset_of
from kvbench.runner.verify.folder import Folder, named
from kvbench.runner.verify.materials import model_folder_of, offline
from kvbench.runner.verify.places import Places
from kvbench.runner.verify.requested import requested
from kvbench.runner.verify.verdict import Check, Findings, Note, missing, wrong
from kvbench.utils.hashing import file_hash
from kvbench.utils.model_shape import shape_of, stores_latents, token_numbers
from kvbench.utils.regular_files import read_bytes

EQUAL = 1e-9
ROUNDED = 1e-3  # kept_per_layer has three decimals
UNKNOWN = {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 1}  # heads of a model
ELEMENT = {"torch.float32": 4, "torch.float16": 2, "torch.bfloat16": 2}


def bytes_fit(folder: Folder, places: Places | None = None) -> Check:
    """FullKV's bytes by the model's shape, kept tokens by budget and histogram, stored bytes by kept and storage."""
    findings = Findings()
    per_token = set()
    lengths: dict[str, int] = {}
    if kinds := sorted({record["kind"] for record in folder.records} - {"method"}):
        findings.missing.append(f"the bytes of records of kind {' and '.join(kinds)} are not compared")
    shapes = {run: known_shape(manifest, places or {}) for run, manifest in folder.manifests.items()}
    requests = {run: requested(manifest) for run, manifest in folder.manifests.items()}
    for record, manifest in folder.with_manifests():
        if record["kind"] != "method":
            continue
        windows, n = record.get("window_bytes", 0), record["prompt_tokens"]
        if n < 1:
            findings.wrong.append(f"{named(record)}: its prompt is empty")
            continue
        if record.get("full_layers") != []:  # of windows alone, bytes do not grow with the prompt
            per_token.add((record["full_bytes"] - windows) / n)
        if lengths.setdefault(record["sample"], n) != n and record["question"] == "visible":
            findings.wrong.append(
                f"{named(record)}: its prompt has {n} tokens, under other settings {lengths[record['sample']]}"
            )
        request = requests[record["run"]]
        if request.problem:
            findings.missing.append(f"settings cannot be built here: {request.problem}")
        about, setting = named(record), request.settings.get(setting_hash(record))
        findings.collect(about, _shape, record, manifest, shapes[record["run"]])
        findings.collect(about, _windows, record)
        findings.collect(about, _sums, record)
        findings.collect(about, _factors, record, manifest, setting)
        findings.collect(about, _kept, record, setting)
        findings.collect(about, _stored, record, manifest, setting)
    if len(per_token) > 1:
        findings.wrong.append(f"FullKV takes {len(per_token)} different numbers of bytes per token")
    return findings.judged("bytes", "r and r_bytes against shape, budget, kept tokens and storage")


def known_shape(manifest: Mapping[str, Any], places: Places) -> Mapping[str, Any] | None:
    """The shape of a preset, or of the model's configuration on this machine; None without either."""
    config = recorded(manifest).model
    preset, written = preset_of(config.get("name")), (manifest.get("model") or {}).get("files") or {}
    if config.get("shape") and preset and preset.get("shape"):
        return dict(preset["shape"])
    try:
        with offline():
            path = model_folder_of(manifest, places) / "config.json"
        if file_hash(path) == written["config.json"]:
            shape = shape_of(json.loads(read_bytes(path)))
            return shape if all(shape.values()) else None
    except Exception:  # whatever a stranger's configuration leads to: the model is not here
        return None
    return None


def _shape_known(manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """The shape of a preset, unless the run skipped comparing it."""
    config = recorded(manifest).model
    shape = config.get("shape")
    return shape and ((preset_of(config.get("name")) or {}).get("shape") or shape)


def _shape(record: Mapping[str, Any], manifest: Mapping[str, Any], shape: Mapping[str, Any] | None) -> Iterator[Note]:
    layers, element = record["kept_per_layer"], ELEMENT.get(str(manifest.get("dtype")))
    if shape is None or element is None:
        yield missing("the model's shape is not known here" if shape is None else "its dtype is none of kvbench's")
        return
    most = shape["num_hidden_layers"]
    places = record.get("full_layers", [*range(most)])
    if len(layers) != len(places) or any(place >= most for place in places):
        yield wrong(f"{len(layers)} layers, but the model has {most}")
    if record.get("window_bytes") or "full_layers" in record:
        yield missing("FullKV's bytes are not computed for layers that do not keep all tokens")
        return
    full = most * token_numbers(shape) * element * record["prompt_tokens"]
    if record["full_bytes"] != full:
        yield wrong(f"FullKV takes {full} bytes, not {record['full_bytes']}")


def _windows(record: Mapping[str, Any]) -> Iterator[Note]:
    """The fields about layers that no method compresses: all of them or none."""
    alone = ("r_full", "r_bytes_full", "r_bytes_floor", "window_bytes")
    present = [name for name in alone if name in record]
    if present and len(present) < len(alone):
        yield wrong(f"it has {', '.join(present)} without {', '.join(name for name in alone if name not in present)}")
    if record.get("state_bytes", 0) > record.get("window_bytes", 0):
        yield wrong("its states have more bytes than the layers that they are in")


def _sums(record: Mapping[str, Any]) -> Iterator[Note]:
    stored, full, windows = record["stored_bytes"], record["full_bytes"], record.get("window_bytes", 0)
    if not full or windows > min(full, stored):
        yield wrong(f"{stored} bytes stored of {full}, {windows} of them in windows")
        return
    alone, share = record.get("r_full", record["r"]), windows / full
    corrected = record["r_corrected"] if share == 1 else (record["r_corrected"] - share) / (1 - share)
    for name, value in (
        ("r_bytes", stored / full),
        ("r_bytes_floor", share),
        ("r_bytes_full", (stored - windows) / (full - windows) if full > windows else 1.0),
        ("r", alone * (1 - share) + share),
    ):
        if name in record and abs(record[name] - value) > EQUAL:
            yield wrong(f"{name} is {record[name]:.6g}, but its bytes make {value:.6g}")
    if record["r2"] == record["r3"] == 1:
        for name, value in (("r", alone), ("r_corrected", corrected)):
            if abs(value - record["r1"]) > EQUAL:
                yield wrong(f"{name} is {value:.6g} without a codebook, but r1 is {record['r1']:.6g}")
    elif not 0 <= record["r2"] * record["r3"] <= 1 + EQUAL:
        yield missing("r is not computed again from r2 and r3, which only its caches tell")
    if min(record[name] for name in ("r1", "r2", "r3", "r", "r_corrected")) < 0 or record["r1"] > 1 + EQUAL:
        yield wrong("a factor of r is outside its range")
    if record["peak_cache_bytes"] < stored - windows:
        yield wrong(f"its caches had {record['peak_cache_bytes']} bytes at most, but store {stored}")


def _factors(record: Mapping[str, Any], manifest: Mapping[str, Any], setting: Setting | None) -> Iterator[Note]:
    """r2 and r3 make nothing smaller where each kept token takes at least the bytes that it had."""
    element = ELEMENT.get(str(manifest.get("dtype")))
    if setting is None or element is None or setting.method.least_share(element) < 1:
        return
    r1, r = record["r1"], record.get("r_full", record["r"])
    for name, value, least in (
        ("r2", record["r2"], 1.0),
        ("r3", record["r3"], 1.0),
        ("r", r, r1),
        ("r_corrected", record["r_corrected"], r1),
    ):
        if value < least - EQUAL:
            yield wrong(f"{name} is {value:.6g}, but its storage makes no vector smaller: at least {least:.6g}")


def _kept(record: Mapping[str, Any], setting: Setting | None) -> Iterator[Note]:
    layers, n = record["kept_per_layer"], record["prompt_tokens"]
    if record.get("full_layers") == layers == record["nominal_per_layer"] == []:  # FullKV of windows alone
        if not record["stored_bytes"] == record["full_bytes"] == record.get("window_bytes"):
            yield wrong("it has no layer that a method compresses, and bytes that are not of windows")
        return
    if any(not 0 <= kept <= n + ROUNDED for kept in layers):
        yield wrong(f"a layer kept {max(layers):g} or {min(layers):g} of {n} tokens")
        return
    if not layers or len(record["nominal_per_layer"]) != len(layers):
        yield wrong(f"{len(layers)} layers kept tokens, {len(record['nominal_per_layer'])} were given some")
        return
    if abs(fmean(layers) / n - record["r1"]) > ROUNDED / n + EQUAL:
        yield wrong(f"r1 is {record['r1']:.6g}, but its layers kept {fmean(layers) / n:.6g}")
    for number, heads in enumerate(record.get("kept_per_head") or []):
        if heads and abs(fmean(heads) - layers[number]) > ROUNDED:
            yield wrong(f"layer {number} kept {layers[number]:g} tokens per head, but its heads {fmean(heads):g}")
    # query heads that share what any of them keeps: a layer kept the union, and its histogram is their mean
    union = setting is not None and not setting.method.unfolds and record["ratio_over"] == "kv_heads"
    for number, text in enumerate(record.get("kept_positions") or []):
        if text is not None and (line := _histogram(text, layers[number], n, union)):
            yield wrong(f"layer {number} {line}")
    if setting is None:
        yield missing("its setting is not built here: its budget is not compared")
        return
    method = setting.method
    if method.ratio_of == "prompt":
        floored = setting.floored(n, len(layers))
        if floored != record["floored"]:
            yield wrong(f"floored is {record['floored']}, but its budget makes {floored}")
    else:
        yield missing(f"its ratio is one of {method.ratio_of}: whether its budget was raised is not compared")
    if method.fills_budget and fmean(layers) < min(setting.requested_tokens(n), n) - 1 - ROUNDED:
        yield wrong(f"its layers kept {fmean(layers):g} tokens, but were to keep {setting.requested_tokens(n):g}")


def _histogram(text: str, kept: float, n: int, union: bool) -> str | None:
    """The contradiction of a histogram, if any; `union`: the layer may have kept more than it shows."""
    shares, starts = decode(text), edges(n)
    if len(shares) != len(starts) - 1:
        return f"has a histogram of {len(shares)} stretches for {n} tokens"
    total = sum(share * (end - start) for share, (start, end) in zip(shares, pairwise(starts), strict=True))
    slack = n / (len(LEVELS) - 1) + 1
    if total > kept + slack or (kept > total + slack and not union):
        return f"kept {kept:g} tokens, but its histogram shows about {total:.0f}"
    return None


def _stored(record: Mapping[str, Any], manifest: Mapping[str, Any], setting: Setting | None) -> Iterator[Note]:
    """The bytes that the layers' tokens take at least in this storage."""
    element, windows = ELEMENT.get(str(manifest.get("dtype"))), record.get("window_bytes", 0)
    if element is None or record["full_bytes"] <= windows:
        return
    share = (record["stored_bytes"] - windows) / (record["full_bytes"] - windows)
    if is_full_record(record) and (share != 1 or record["r"] != 1):
        yield wrong(f"FullKV stores everything, not {share:.6g}")
    least = 0.0 if setting is None else least_stored(record, setting.method, element, _shape_known(manifest))
    # bytes are whole, and a layer's tokens are rounded
    if share < least * (1 - EQUAL) - ROUNDED / record["prompt_tokens"]:
        vectors = f"{record['r1']:.6g} of its vectors: at least {least:.6g}"
        yield wrong(f"{share:.6g} of FullKV's bytes cannot hold {vectors}")
    if math.isnan(share):
        yield wrong("its bytes are no numbers")
    yield from _in_16_bits(record, setting, manifest, element)


def _in_16_bits(
    record: Mapping[str, Any], setting: Setting | None, manifest: Mapping[str, Any], element_bytes: int
) -> Iterator[Note]:
    """r_bytes_16, where the record has it, against r_bytes and the storage: codes are at most twice as large there."""
    stated = record.get("r_bytes_16")
    if stated is None:
        return
    if element_bytes == 2 and abs(stated - record["r_bytes"]) > EQUAL:
        yield wrong(f"r_bytes_16 is {stated:.6g}, but its run in 16 bits stores {record['r_bytes']:.6g}")
    least = record["r_bytes"]
    if record.get("window_bytes"):  # states stay in float32, so that FullKV's bytes are not halved
        least /= 2
    elif setting is not None:
        least = max(least, least_stored(record, setting.method, 2, _shape_known(manifest)))
    if not least * (1 - EQUAL) - ROUNDED / record["prompt_tokens"] <= stated <= 2 * record["r_bytes"] + EQUAL:
        bounds = f"{record['r_bytes']:.6g} of its bytes make at least {least:.6g}"
        yield wrong(f"r_bytes_16 is {stated:.6g}, but {bounds}")


def least_stored(
    record: Mapping[str, Any], method: Method, element_bytes: int, shape: Mapping[str, Any] | None
) -> float:
    """The least share of FullKV's bytes that holds the tokens which the record's layers kept."""
    layers, of_heads = record["kept_per_layer"], record.get("kept_per_head") or []
    model = shape or UNKNOWN
    # query heads that select for themselves may have copies of their own
    if stores_latents(model):  # whose keys and values are not as wide as each other
        shape, model = None, UNKNOWN
    unfolded = record.get("ratio_over") == "query_heads" and method.unfolds
    heads = int(model["num_attention_heads" if unfolded else "num_key_value_heads"])
    least = 0.0
    for number, kept in enumerate(layers):
        alike = float(kept).is_integer() and not (number < len(of_heads) and of_heads[number])
        layer = KeptLayer(int(kept) if alike else None, heads, model["head_dim"], number, len(layers))
        least += kept * method.least_share(element_bytes, layer if shape else None)
    copies = heads / model["num_key_value_heads"]
    return float(copies * least / (len(layers) * record["prompt_tokens"])) if layers else 0.0
