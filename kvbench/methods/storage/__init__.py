"""Storage: how the tokens that a method keeps are held. The files of conf/storage name these classes."""

from kvbench.methods.storage.base import KeptLayer, Storage
from kvbench.methods.storage.block_formats import Ggml, Microscaling
from kvbench.methods.storage.codebook import Codebook
from kvbench.methods.storage.dense import Dense
from kvbench.methods.storage.fp8 import Fp8
from kvbench.methods.storage.gear import GEAR
from kvbench.methods.storage.kivi import Kivi
from kvbench.methods.storage.kvquant import KVQuant
from kvbench.methods.storage.kvtc import KVTC
from kvbench.methods.storage.matched import Matched
from kvbench.methods.storage.minicache import MiniCache
from kvbench.methods.storage.palu import Palu
from kvbench.methods.storage.rerotated import Rerotated
from kvbench.methods.storage.think import ThinK
from kvbench.methods.storage.turboquant import TurboQuant
from kvbench.methods.storage.xkv import XKV

__all__ = [
    "GEAR",
    "KVTC",
    "XKV",
    "Codebook",
    "Dense",
    "Fp8",
    "Ggml",
    "KVQuant",
    "KeptLayer",
    "Kivi",
    "Matched",
    "Microscaling",
    "MiniCache",
    "Palu",
    "Rerotated",
    "Storage",
    "ThinK",
    "TurboQuant",
]
