"""What the values of a manifest may reach on this machine while objects are made of them."""

import site
import sys
import sysconfig
from contextlib import AbstractContextManager
from pathlib import Path

from huggingface_hub import constants

import kvbench
from kvbench.configuration.conf import folders
from kvbench.runner.verify.places import Places
from kvbench.utils.files import cache_root
from kvbench.utils.plugins import plugins
from kvbench.utils.strangers import strangers_values


def within_reach(places: Places) -> AbstractContextManager[None]:
    """A block in which the places of the command line, what is installed and the caches are read, and nothing else."""
    libraries = (sys.prefix, *(sysconfig.get_path(name) for name in ("purelib", "platlib")), site.getusersitepackages())
    own: tuple[str | Path, ...] = (*kvbench.__path__, *folders(), *(plugin.folder for plugin in plugins()))
    return strangers_values([*places.values(), *libraries, *own, cache_root(), constants.HF_HUB_CACHE])
