"""GuideLLM in miniature, by the standard library alone: sends a scenario's requests, and writes a report like it.

Run as `python -m guidellm run --config scenario.json` is, by a Python that stands for its environment. Its numbers are
those of tests/data/guidellm_report.json, with tokens a second that grow with the load.
"""

import json
import os
import sys
import urllib.request
from pathlib import Path

KEY = "GUIDELLM__SPEC__BACKEND__API_KEY"
REPORT = Path(__file__).parents[1] / "data" / "guidellm_report.json"


def main(mode: str, arguments: list[str]) -> int:
    assert arguments[:4] == ["-m", "guidellm", "run", "--config"], arguments
    spec = json.loads(Path(arguments[4]).read_text())["spec"]
    if mode == "fails":
        print("Traceback (most recent call last):\nValueError: no such profile", file=sys.stderr)
        return 1
    rows = [json.loads(line) for line in Path(spec["data"][0]["path"]).read_text().splitlines()]
    assert len(rows) == spec["constraints"][0]["count"] and Path(spec["tokenizer"]["model"], "tokenizer.json").exists()
    if spec["profile"]["kind"] == "throughput" and "max_concurrency" not in spec["profile"]:
        print("- Field required (at 'profile.throughput.max_concurrency')", file=sys.stderr)
        return 2
    for row in rows:
        send(spec["backend"], row)
    report = json.loads(REPORT.read_text())
    (one,) = report["benchmarks"]
    kind = spec["profile"]["kind"]
    rate = (spec["profile"].get("streams") or spec["profile"].get("rate") or [1])[0]
    one["config"]["strategy"] = {"type_": kind, "streams": rate, "rate": rate}
    one["metrics"]["output_tokens_per_second"]["successful"]["mean"] = 100.0 * rate + len(rows[0]["prompt"]) % 7
    if mode == "unanswered":
        one["metrics"]["request_totals"] |= {"successful": 0, "errored": 7}
    if mode == "uncounted":
        one["metrics"]["prompt_token_count"]["successful"] = {"mean": 0.0, "min": 0.0}
    if key := os.environ.get(KEY):  # some servers repeat it in their errors
        one["requests"]["errored"][0]["info"] = dict.fromkeys(
            ("error", "traceback"), f"ValueError('no more for {key}')"
        )
    Path(spec["outputs"][0]["path"]).write_text(json.dumps(report))
    return 0


def send(backend: dict, row: dict) -> None:
    chats = backend["request_format"].endswith("chat/completions")
    prompt = {"messages" if chats else "prompt": row["prompt"]}
    body = {"model": backend["model"], **prompt, "max_tokens": row["new_tokens"], **backend["extras"]["body"]}
    key = os.environ.get(KEY)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    url = backend["target"].removesuffix("/v1") + backend["request_format"]
    assert url.startswith("http://127.0.0.1:"), "tests load loopback addresses alone"
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=30).read()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2:]))
