"""The configuration of a command: composed from conf/ and overrides, parsed once, and then a typed object.

Importing this needs neither torch nor transformers.
"""

from kvbench.configuration.compose import configured, resolved
from kvbench.configuration.configuration import Configuration
from kvbench.configuration.experiment import Experiment
from kvbench.configuration.model_spec import ModelSpec, model_spec

__all__ = ["Configuration", "Experiment", "ModelSpec", "configured", "model_spec", "resolved"]
