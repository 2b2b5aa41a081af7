"""The fewest bytes that a setting's storage can take, as a share of FullKV's, from its parameters alone.

Each bound leaves out what storages add (scales, minima, references, raw windows), so that no honest record is below it.
"""

import re
from collections.abc import Mapping
from typing import Any

BITS = {"fp8": 8, "mxfp8": 8, "mxfp6": 6, "mxfp4": 4, "nvfp4": 4, "iq4_nl": 4}


def least_share(storage: Mapping[str, Any], element_bytes: int) -> float:
    """Bytes per kept vector over those of a raw one; 0 for a storage of which nothing is known."""
    whole = 8 * element_bytes
    match str(storage.get("_target_", "")).rpartition(".")[2]:
        case "Dense":  # raw vectors
            return 1.0
        case "Fp8":  # a byte per element
            return 8 / whole
        case "Kivi":  # codes of `bits`; layers_file gives each layer its own, at least 2
            bits = storage.get("bits")
            keys, values = storage.get("key_bits") or bits or 2, storage.get("value_bits") or bits or 2
            return min(keys, values, whole) / whole
        case "Ggml" | "Microscaling":  # blocks of elements of so many bits, and a scale
            return (_bits(storage.get("k")) + _bits(storage.get("v"))) / 2 / whole
        case "TurboQuant":  # rotated codes, and a norm
            return min(storage.get("bits") or 2, storage.get("value_bits") or storage.get("bits") or 2) / whole
        case "KVQuant" | "GEAR":  # codes of `bits`
            return (storage.get("bits") or 2) / whole
        case "Palu":  # as many numbers of a vector
            return float(storage.get("rank", 0)) * 0.99  # whole numbers of them, rounded down
        case "ThinK":  # keys without a share of their channels, whole values
            return float(1 - storage.get("share", 1) / 2)
        case "MiniCache":  # at most every second layer is without vectors of its own
            return least_share(storage.get("storage") or {}, element_bytes) / 2
    return 0.0  # a codebook has as few entries as its vectors are similar


def _bits(name: object) -> int:
    """Bits of an element in a block format: q4_0 has 4."""
    text = str(name)
    known = next((bits for begin, bits in BITS.items() if text.startswith(begin)), None)
    found = re.match(r"q(\d)", text)
    return known if known is not None else int(found[1]) if found else 0
