"""Records on the disk: the store, the manifests of the runs that made them, and how to load and check them."""

from kvbench.records.consistency import Finding, check
from kvbench.records.load import gather, load
from kvbench.records.provenance import manifests

__all__ = ["Finding", "check", "gather", "load", "manifests"]
