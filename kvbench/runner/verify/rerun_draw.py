"""The draw of the samples to make again, from a folder's records and a text that its maker did not know."""

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvbench.errors import UserError
from kvbench.utils.hashing import digest


@dataclass(frozen=True)
class Draw:
    """The number of samples to draw, and the verifier's nonce, which with the folder's records decides the samples.

    A nonce is chosen after the folder was handed in. The same nonce draws the same samples again.
    """

    count: int
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        if self.count < 1:
            raise UserError(f"--rerun {self.count} must be at least 1: how many samples are made again")
        if not self.nonce.isascii() or not self.nonce.isprintable() or not self.nonce:
            raise UserError(f"--nonce {self.nonce!r} must be printable ASCII characters")

    def samples(self, records: Iterable[Mapping[str, Any]]) -> list[str]:
        """The drawn samples, at most `count`.

        A change of any record changes the draw, so that a forger cannot try out folders without the nonce.
        """
        records = list(records)
        contents = digest(*sorted(json.dumps(record, sort_keys=True) for record in records))
        names = {record["sample"] for record in records}
        return sorted(names, key=lambda name: digest(contents, self.nonce, json.dumps(name)))[: self.count]
