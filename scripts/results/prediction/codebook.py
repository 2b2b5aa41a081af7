"""Seconds of SpindleKV's greedy codebook, whose rounds and votes were counted on real vectors of the small model.

N = r n kept tokens of a head, W = N / 32 words of neighbours, rounded up to a power of two. Groups of layers are found
at the same time, as many as AT_ONCE allows. For keys and values each

    similarities  L K N² d · (3 / flops + exact / FLOPS64) + L K N² / 2 · NEAR / INT
                  N² d: half of 2 N² d, as they are symmetric; 3 products of float16, and the share of tiles that are
                  computed again in float64
    votes         L K N · votes · W · (WORD + bits · BIT) / INT; the late ones, of rounds in which a set has one
                  program, once more on that program's multiprocessor
    rounds        groups · rounds · (4 pick + 3 N · scan): steps that wait for each other

exact, votes (of a vector in all rounds), late votes, rounds and bits of the highest degree are those counted, the most
of any layer (results/benchmarks/codebook_8k.json). With more vectors than these, rounds, late votes and votes after the
first round are assumed to grow as N does. INT is a quarter of the peak of float32, as a multiprocessor has 64 lanes for
integers and 128 that multiply and add floats. NEAR, WORD and BIT are instructions in the kernels' machine code for
sm_90, for a similarity, a word of a vote and each bit of degrees.
"""

import math

from kvbench.methods.spindlekv.codebook.coding import cover_bytes
from kvbench.methods.spindlekv.layer_groups import AT_ONCE
from scripts.results.prediction.assumptions import PEAK_FLOPS, Assumptions
from scripts.results.prediction.llama import D, K, L

FLOPS64 = 67e12
INT = 67e12 / 4
MULTIPROCESSORS = 132
NEAR, WORD, BIT = 20, 30, 5


def layers_at_once(kept: int) -> int:
    return max(min(AT_ONCE // (K * cover_bytes(kept, D)), L), 1)


def groups_of(kept: int) -> int:
    """How many times sets are worked on at the same time: several layers, or some of the heads of one."""
    slices = -(-K // max(AT_ONCE // cover_bytes(kept, D), 1))
    return -(-L // layers_at_once(kept)) * slices


def codebook_seconds(kept: int, counted: dict, assumed: Assumptions) -> float:
    """Of all layers' keys and values, once, without launches. `counted` are the rows of codebook_8k.json."""
    flops, flops64, integers = (peak * assumed.codebook for peak in (PEAK_FLOPS, FLOPS64, INT))
    layers = layers_at_once(kept)
    groups = groups_of(kept)
    words = 2 ** math.ceil(math.log2(max(kept / 32, 1)))
    seconds = 0.0
    for side in ("keys", "values"):
        of_side = [row for name, row in counted.items() if name.endswith(side)]
        most = {name: max(row[name] for row in of_side) for name in of_side[0]}
        growth = max(kept / most["vectors"], 1)
        votes, late = 1 + (most["votes"] - 1) * growth, min(most["late_votes"] * growth, 1)
        vote = kept * words * (WORD + most["degree_bits"] * BIT) / integers  # of every vector of a head once
        turns = -(-K * layers // MULTIPROCESSORS)
        seconds += L * K * kept**2 * D * (3 / flops + most["exact_tiles"] / flops64)
        seconds += L * K * kept**2 / 2 * NEAR / integers
        seconds += L * K * votes * vote + groups * turns * late * vote * MULTIPROCESSORS
        seconds += groups * most["rounds"] * growth * (4 * assumed.pick + 3 * kept * assumed.scan)
    return seconds
