"""What a machine says of itself beside a measured time."""

import sys
from types import SimpleNamespace

import pytest

from kvbench.evaluation.speed.conditions import conditions


class NVMLError(Exception):
    pass


@pytest.fixture
def driver(monkeypatch):
    """A made-up NVML of two GPUs, of which the second does not say how busy it is."""
    state = SimpleNamespace(opened=0)

    def utilization(handle):
        if handle == "gpu 1":
            raise NVMLError("not supported")
        return SimpleNamespace(gpu=37, memory=5)

    def opened(step):
        state.opened += step

    fake = SimpleNamespace(
        NVMLError=NVMLError,
        NVML_CLOCK_SM=1,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: opened(1),
        nvmlShutdown=lambda: opened(-1),
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex="gpu {}".format,
        nvmlDeviceGetClockInfo=lambda handle, clock: 1410 + clock,
        nvmlDeviceGetMaxClockInfo=lambda handle, clock: 1980,
        nvmlDeviceGetTemperature=lambda handle, sensor: 41,
        nvmlDeviceGetUtilizationRates=utilization,
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake, state


def test_every_gpu_is_read_and_an_unsupported_value_is_null(driver):
    first = {"clocks.sm": 1411, "clocks.max.sm": 1980, "temperature.gpu": 41, "utilization.gpu": 37}
    assert conditions()["gpus"] == [first, first | {"utilization.gpu": None}]
    assert driver[1].opened == 0  # as often closed as opened


@pytest.mark.parametrize("query", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"])
def test_a_driver_that_is_missing_or_fails_gives_null(driver, query):
    def fails(*arguments):
        raise NVMLError("no driver")

    setattr(driver[0], query, fails)
    assert conditions()["gpus"] is None


def test_the_rest_needs_no_gpu():
    assert set(conditions()) == {"load", "cpu_mhz", "governor", "gpus"}
    assert conditions()["load"] >= 0
