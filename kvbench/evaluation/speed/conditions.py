"""Conditions that a measured time depends on: clocks, temperature, and the machine's load."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def conditions() -> dict[str, Any]:
    """The machine at this moment; null for what cannot be read.

    load      mean number of processes that ran or waited in the last minute, this one among them
    cpu_mhz   mean clock of the CPU, MHz
    governor  of the CPU's clock
    gpus      of every GPU: clocks in MHz, temperature in °C, use in per cent
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


def _gpus() -> list[dict[str, Any]] | None:
    """The values of every GPU under nvidia-smi's names; None without NVIDIA's driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        return [_gpu(pynvml.nvmlDeviceGetHandleByIndex(index)) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


def _gpu(handle: object) -> dict[str, Any]:
    import pynvml

    use = _read(pynvml.nvmlDeviceGetUtilizationRates, handle)
    return {
        "clocks.sm": _read(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        "clocks.max.sm": _read(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM),
        "temperature.gpu": _read(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        "utilization.gpu": use and use.gpu,
    }


def _read(query: Callable[..., Any], *arguments: object) -> Any:
    """NVML's answer, or None if the driver has none."""
    import pynvml

    try:
        return query(*arguments)
    except pynvml.NVMLError:
        return None
