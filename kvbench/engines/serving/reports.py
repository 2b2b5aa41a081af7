"""A report of any known tool that loads servers."""

import json
from pathlib import Path

from kvbench.engines.serving import aiperf_report, guidellm_report
from kvbench.engines.serving.figures import Measured
from kvbench.errors import UserError
from kvbench.utils.regular_files import read_bytes

LARGEST = 512 * 2**20  # largest size of a report in bytes: a load has kilobytes per request


def read_report(path: Path) -> list[Measured]:
    """The loads of a JSON report. Raises UserError for a file that neither GuideLLM nor AIPerf wrote."""
    try:
        node = json.loads(read_bytes(path, LARGEST).decode())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError):
        node = None
    if isinstance(node, dict):
        for known, read in (
            (guidellm_report.is_guidellm, guidellm_report.measured),
            (aiperf_report.is_aiperf, aiperf_report.measured),
        ):
            try:
                if known(node) and (loads := read(node)):
                    return loads
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise UserError(f"{path} is a report without {error}") from error
    raise UserError(f"{path} is not a JSON report of GuideLLM (0.8) or AIPerf (profile_export_aiperf.json)")
