"""The GPUs of estimated times, and the assumptions about them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GPU:
    """A GPU's peak rates by its data sheet, and the share of each that a run is assumed to reach.

    flops: dense bfloat16 operations per second; bandwidth: bytes per second.
    """

    name: str
    flops: float
    flops_share: float
    bandwidth: float
    bandwidth_share: float

    def seconds(self, flops: float, read_bytes: float) -> float:
        """Seconds for prefills of `flops` operations and decoding that reads `read_bytes` bytes."""
        return flops / (self.flops * self.flops_share) + read_bytes / (self.bandwidth * self.bandwidth_share)

    @property
    def assumptions(self) -> str:
        reached = f"{self.flops_share:.0%} of {self.flops / 1e12:.0f} TFLOP/s"
        read = f"{self.bandwidth_share:.0%} of {self.bandwidth / 1e12:.2f} TB/s"
        return f"on an {self.name}, with prefill at {reached} and decoding at {read}".replace("%", " %")


H100 = GPU("H100", 989e12, 0.4, 3.35e12, 0.6)
A100 = GPU("A100", 312e12, 0.4, 2.04e12, 0.6)
RTX_4090 = GPU("RTX 4090", 165e12, 0.4, 1.01e12, 0.6)
