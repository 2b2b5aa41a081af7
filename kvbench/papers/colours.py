"""One colour for each method, in every figure and on every page: by its name alone, not by its place among others."""

import re
import zlib
from collections.abc import Iterable

from kvbench.config import titled

FULL = "full"  # has the colour of the text
# Apart in hue and lightness, on white and on black.
COLOURS = (
    "#0072b2 #d55e00 #009e73 #cc79a7 #56b4e9 #e69f00 #8a6fd1 #b22222 #7f9a1c #00a5a5 #8b5a2b #e64980 #5c7cfa #37b24d "
    "#c2b600 #9c36b5 #6b8e9f #f2726f #4a7023 #b08968 #94d82d #1c6e7d #a61e4d #f7a8cd"
).split()
# The titles of a method's presets begin with its name. Those that papers compare most come first and have the colours
# that are furthest apart; the last ones share them.
METHODS = (
    "streaming_llm h2o snapkv pyramidkv adakv kivi kvzip tova spindle knorm expected_attention turboquant fp8 "
    "simlayerkv cake lava minicache pooling_merge pyramidinfer squeeze quest keydiff turboquant_2 criticalkv "
    "ada_criticalkv ada_pyramidkv ggml lagkv headkv duo rkv think mxfp nvfp random only_lazy kvpress chunkkv cur "
    "leverage key_rerotation llama_cpp vllm openvino openai non_causal compactor kvcompose nacl triattention "
    "attention_matching rocketkv omnikv finch score_threshold "
    "kvquant gear kvtc palu xkv"
).split()


def slot(name: str) -> int | None:
    """A number of the method whose name, preset, title or label this is: its colour is COLOURS[slot % 24].

    None for FullKV. A name that begins with none of METHODS has a number of its own, which depends on nothing else.
    """
    plain = _plain(titled(name))
    if plain in ("full", "fullkv"):
        return None
    known = [method for method in METHODS if plain.startswith(_plain(method))]
    if known:
        return METHODS.index(max(known, key=len))
    return zlib.crc32(_plain(name.partition(" ")[0]).encode()) % (len(COLOURS) * 1000)


def colour(name: str, full: str = "#000000") -> str:
    """The colour of a method; `full` for FullKV's."""
    number = slot(name)
    return full if number is None else COLOURS[number % len(COLOURS)]


def places(names: Iterable[str], count: int) -> dict[str, int]:
    """A place among `count` marks or hatches for each name: its slot's, or the next one that no earlier name has.

    Where there are more names than places they begin again.
    """
    found: dict[str, int] = {}
    for number, name in enumerate(dict.fromkeys(names)):
        taken = set(list(found.values())[number // count * count :])
        place = (slot(name) or 0) % count
        while place in taken:
            place = (place + 1) % count
        found[name] = place
    return found


def _plain(name: str) -> str:
    """`Expected Attention 0.2` begins with `expected_attention`."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
