"""Packages that a plain installation lacks: each is part of an extra, which errors name."""

from importlib.util import find_spec

from kvbench.errors import UserError

# extra of pyproject.toml -> modules; the extra `all` has all
EXTRAS = {
    "longbench": ("fuzzywuzzy", "jieba", "rouge", "rouge_score"),
    "ruler": ("nltk", "wonderwords"),
    "tracking": ("wandb",),
    "cpu": ("numba",),
    "plots": ("matplotlib",),
    "report": ("pyarrow",),
    "server": ("httpx",),
    "speed": ("pynvml",),
}
EXTRA_OF = {module: extra for extra, modules in EXTRAS.items() for module in modules}


def lacking(*modules: str) -> str:
    """The first of these modules that is not installed, and how to install it; empty if all are installed.

    Those that a class outside of kvbench names are part of no extra.
    """
    missing = next((module for module in modules if find_spec(module) is None), None)
    if missing is None:
        return ""
    if missing not in EXTRA_OF:
        return f"{missing}, which is not installed"
    return f"{missing.replace('_', '-')}, which is not installed: pip install 'kvbench[{EXTRA_OF[missing]}]'"


def require(what: str, *modules: str) -> None:
    """Raise UserError if one of these modules, which `what` needs, is not installed."""
    if missing := lacking(*modules):
        raise UserError(f"{what} needs {missing}")
