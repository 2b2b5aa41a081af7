"""One window of observed queries for all methods that are compared: the overrides that set it."""

from collections.abc import Collection, Iterable

# Where the parameters of methods have the number of the prompt's last queries that score.
OBSERVED = """
    snapkv.scoring.window pyramidkv.scoring.window adakv.scoring.window lava.scoring.window cake.scoring.window
    cake.allocation.window finch.scoring.window nacl.scoring.window criticalkv_snapkv.scoring.base.window
    chunkkv.scoring.base.window squeeze_snapkv.policy.scoring.window pooling_merge.window spindle.window
    snapkv_nvfp4.scoring.window snapkv_kivi4.scoring.window think_snapkv.scoring.window think_snapkv.storage.window
    simlayerkv.w_last
""".split()


def one_window(window: int) -> list[str]:
    return [f"method.{place}={window}" for place in OBSERVED]


def overrides_of(methods: Collection[str], overrides: Iterable[str]) -> list[str]:
    """Of overrides method.NAME.…, those of these methods."""
    return [override for override in overrides if override.removeprefix("method.").partition(".")[0] in methods]
