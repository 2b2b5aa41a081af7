"""What else a time depends on, as far as it can be read: clocks, and how busy the machine is."""

import os
import subprocess
from pathlib import Path

import psutil

_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_OF_GPUS = ("clocks.sm", "clocks.max.sm", "temperature.gpu", "utilization.gpu")


def conditions() -> dict:
    """The machine at this moment; null for what it does not tell.

    load is the mean number of processes that ran or waited in the last minute, this one among them.
    """
    return {
        "load": round(os.getloadavg()[0], 2),
        "cpu_mhz": _cpu_mhz(),
        "governor": _GOVERNOR.read_text().strip() if _GOVERNOR.is_file() else None,
        "gpus": _gpus(),
    }


def _cpu_mhz() -> float | None:
    try:
        frequency = psutil.cpu_freq()
    except (OSError, NotImplementedError):
        return None
    return round(frequency.current) if frequency else None


def _gpus() -> list[dict] | None:
    """Clocks in MHz, temperature and use of every GPU; None without nvidia-smi."""
    command = ["nvidia-smi", f"--query-gpu={','.join(_OF_GPUS)}", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    return [dict(zip(_OF_GPUS, (value.strip() for value in line.split(",")), strict=False)) for line in lines]
