"""The ratio of bytes that a deployment stores: r_bytes_16 for checkpoints that are published in 16 bits."""

import pandas as pd

from kvbench.utils.text import count

IN_16 = "r_bytes_16"
WIDE = ("float32", "float64")  # dtypes of checkpoints that are not served in 16 bits
NARROW = ("torch.float16", "torch.bfloat16")
EQUAL = 1e-9
COUNTED = (
    f"{IN_16}: bytes stored over FullKV's with 16 bits for each of the model's numbers, as the checkpoint is published"
)


def with_16_bits(records: pd.DataFrame) -> pd.DataFrame:
    """Records with r_bytes_16, which is added to records of versions without it if it is certain.

    It is in a run in 16 bits, and for raw vectors, whose share of FullKV's bytes is the same in any dtype.
    """
    if "r_bytes" not in records or not len(records):
        return records
    known = records[IN_16] if IN_16 in records else pd.Series(float("nan"), index=records.index)
    copies = records["r_bytes"] / records["r"]  # stored for each vector, where query heads have their own
    raw = (records[["r2", "r3"]] == 1).all(axis=1) & ((copies - copies.round()).abs() < EQUAL) & (copies > 0.5)
    certain = raw | records["dtype"].isin(NARROW)
    return records.assign(**{IN_16: known.where(known.notna() | ~certain, records["r_bytes"])})


def served_bytes(records: pd.DataFrame) -> pd.Series:
    """r_bytes_16 of each record, or r_bytes where it is unknown or the checkpoint is published in more bits."""
    if IN_16 not in records:
        return records["r_bytes"] if "r_bytes" in records else pd.Series(float("nan"), index=records.index)
    return records[IN_16].where(records[IN_16].notna() & ~_wide(records), records["r_bytes"])


def name_of(records: pd.DataFrame) -> str:
    """The name of `served_bytes` for these records."""
    if IN_16 not in records or _wide(records).any():
        return "r_bytes"
    return IN_16 if records.loc[records["r_bytes"].notna(), IN_16].notna().all() else "r_bytes"


def note_of(records: pd.DataFrame) -> str | None:
    """A caption's note on `served_bytes`; None for plain r_bytes."""
    if name_of(records) == IN_16:
        return COUNTED
    if "r_bytes" not in records or _wide(records).all():
        return None
    own = records[IN_16].isna() | _wide(records) if IN_16 in records else True
    settings = count(records[records["r_bytes"].notna() & own]["setting"].nunique(), "setting")
    return f"r_bytes in 16 bits, but of {settings} in the run's own dtype: codes look smaller beside 32-bit numbers"


def _wide(records: pd.DataFrame) -> pd.Series:
    """Whether each record's checkpoint is published in more than 16 bits; not where its run did not record it."""
    if "checkpoint_dtype" not in records:
        return pd.Series(False, index=records.index)
    return records["checkpoint_dtype"].isin(WIDE)
