"""The version of kvbench, which manifests, calibrations and `--version` name."""

__version__ = "0.2.0"
