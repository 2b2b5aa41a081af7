"""GuideLLM in a separate environment (make engine-guidellm): it sends one load to a server and writes a report."""

import json
import os
import random
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from kvbench.benchmarks.serve import Serve
from kvbench.engines.base import Address
from kvbench.engines.processes import kill_group, last_line
from kvbench.engines.server import LIKELIEST
from kvbench.engines.serving.figures import Load
from kvbench.engines.serving.guidellm_report import cross_out
from kvbench.engines.worker import in_environment
from kvbench.errors import UserError
from kvbench.models import TextModel
from kvbench.utils.text import first_line

ENVIRONMENT = ".venv-guidellm"
PINNED = "guidellm==0.8.1"
# GuideLLM's name for the rate of each profile.
RATES = {"concurrent": "streams", "constant": "rate"}
AT = "at"  # column of the seconds from a load's beginning to a request
KEY = "GUIDELLM__SPEC__BACKEND__API_KEY"  # GuideLLM's environment variable for a server's key, which is in no file
START = 900.0  # seconds for imports and the end of the process, in addition to the load


def arrivals(rate: float, requests: int, seed: int) -> list[float]:
    """Seconds from a load's beginning to each of its requests, `rate` a second at random.

    Drawn here: each of the ten processes of GuideLLM 0.8.1 draws the same pauses, so that ten requests follow each
    other evenly and at another rate; and one that starts before the load's time is known sends all requests at once.
    """
    draw = random.Random(seed)
    return list(accumulate(draw.expovariate(rate) for _ in range(requests)))


class NotMeasured(Exception):
    """The reason why a load has no report, in one line."""


def guidellm() -> Path:
    """The Python of GuideLLM's environment. Raises UserError if it is not installed."""
    if (python := in_environment(ENVIRONMENT)) is None:
        raise UserError(
            f"benchmark=serve measures with GuideLLM, which is not installed: make engine-guidellm, or python3 -m venv "
            f"{ENVIRONMENT} && {ENVIRONMENT}/bin/pip install {PINNED}"
        )
    return python


@dataclass(frozen=True)
class GuideLLM:
    """Loads of one benchmark on one server."""

    python: Path
    benchmark: Serve
    address: Address
    reader: TextModel

    def measure(self, load: Load, rows: Sequence[Mapping[str, Any]], report: Path, seed: int) -> None:
        """Send `rows`, which `requests.rows` makes, and write `report`; `seed` is that of random arrivals.

        Raises NotMeasured if that fails.
        """
        with tempfile.TemporaryDirectory(prefix="kvbench-guidellm-") as name:
            folder = Path(name)
            self.reader.tokenizer.save_pretrained(folder / "tokenizer")
            sent = [{name: row[name] for name in ("prompt", "new_tokens")} for row in rows]
            if load.profile == "poisson" and load.rate is not None:
                sent = [{**row, AT: at} for row, at in zip(sent, arrivals(load.rate, len(rows), seed), strict=True)]
            (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in sent), encoding="utf-8")
            scenario = self.scenario(load, len(rows), folder, report.resolve())
            (folder / "scenario.json").write_text(json.dumps(scenario), encoding="utf-8")
            self.run(folder, report)
            if self.address.secret is not None:
                cross_out(report, self.address.secret)

    def scenario(self, load: Load, requests: int, folder: Path, report: Path) -> dict[str, Any]:
        """The configuration of GuideLLM for one load."""
        profile: dict[str, Any] = {"kind": load.profile}
        if load.profile == "poisson":
            profile = {"kind": "replay", "schedule_turn": "timestamp"}
        elif load.profile == "throughput":
            profile |= {"max_concurrency": requests}
        elif load.rate is not None:
            profile |= {RATES[load.profile]: [load.rate]}
        limits = {"ttft_ms": self.benchmark.first_token_ms, "tpot_ms": self.benchmark.token_ms}
        extras = {**LIKELIEST, **self.address.extras}
        column = "raw_messages_column" if self.address.chats else "text_column"
        columns = {column: "prompt", "output_tokens_count_column": "new_tokens"}
        columns |= {"relative_timestamp_column": AT} if load.profile == "poisson" else {}
        spec = {
            "backend": {
                "kind": "openai_http",
                "target": self.address.url,
                "model": self.address.model,
                "request_format": "/v1/chat/completions" if self.address.chats else "/v1/completions",
                "validate_backend": False,  # kvbench has tested it already
                "verify": True,
                "follow_redirects": False,
                "extras": {"body": extras},
            },
            # without its own warm-up, which goes by times: where four are open at once, two more all count
            "profile": profile,
            "constraints": [
                {"kind": "max_requests", "count": requests},
                {"kind": "max_duration", "seconds": self.benchmark.seconds},
            ],
            "tokenizer": {"kind": "huggingface_auto", "model": str(folder / "tokenizer")},
            "data": [{"kind": "json_file", "path": str(folder / "prompts.jsonl")}],
            "data_column_mapper": {"kind": "generative_column_mapper", "column_mappings": columns},
            "outputs": [{"kind": "json", "path": str(report)}],
            # times and counts of each request, without prompt and answer
            "metrics": {"kind": "generative", "sample_size": 0, "slo": limits if any(limits.values()) else None},
            "seed": {"kind": "static", "value": 0},
        }
        return {"spec": spec}

    def run(self, folder: Path, report: Path) -> None:
        log = folder / "log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [str(self.python), "-m", "guidellm", "run", "--config", "scenario.json", "--disable-console"],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self.environment(folder),
                cwd=folder,  # GuideLLM looks for an .env file here
                start_new_session=True,  # Ctrl-C reaches only the run, which ends GuideLLM and its workers
            )
            try:
                code = process.wait(self.benchmark.seconds + START)
            except subprocess.TimeoutExpired:
                raise NotMeasured(f"GuideLLM did not end within {self.benchmark.seconds + START:g} s") from None
            finally:
                kill_group(process)
        if code or not report.is_file():
            words = last_line(log) or "it gives no reason"
            secret = self.address.secret
            words = secret.out_of(words) if secret else words
            raise NotMeasured(f"GuideLLM ended with exit code {code}: {first_line(words)[:300]}")

    def environment(self, folder: Path) -> dict[str, str]:
        """Environment variables without network access except to the server, and without settings of GuideLLM."""
        of_python = ("PYTHONPATH", "PYTHONHOME")
        kept = {name: value for name, value in os.environ.items() if name not in of_python and "GUIDELLM" not in name}
        kept |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HOME": str(folder / "huggingface")}
        return kept if self.address.secret is None else {**kept, KEY: self.address.secret.value}
