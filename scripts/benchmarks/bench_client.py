"""How many questions `engine=openai` asks in a second, and what one costs its process.

A server in a process of its own answers each question after --wait-ms milliseconds: prompts as token ids, answers as
token ids and text. Told are questions per second, seconds of the client's CPU (user and system, of all threads) for
1,000 questions, and the peak of its memory after the first quarter of them and after all. At --concurrency 64 and 50 ms
no client can ask more than 1,280 questions in a second. Records are made, synced and counted as in a run; tables are
not. --profile FILE writes the main thread's calls for pstats.
"""

import asyncio
import cProfile
import json
import multiprocessing
import resource
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

from kvbench.configuration import configured
from kvbench.engines.evaluate import evaluate
from kvbench.engines.pace import pace_of
from kvbench.evaluation.record import Run
from kvbench.records.store import Store
from kvbench.runner.progress import with_progress
from kvbench.runner.request import build_request
from kvbench.runner.run import load_inputs
from scripts.frame import script_parser, tell

MODEL = "smollm2-135m"
TOKEN, TEXT = 1072, " does"  # what every answer of the embedded model repeats


def serve(port: Any, wait: float, tokens: int) -> None:
    """Answer until the process ends; its port goes into `port`."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):  # the client has closed
                return writer.close()
            length = next(
                (int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:"), 0
            )
            body = await reader.readexactly(length)
            if head.startswith(b"GET"):
                node: dict[str, Any] = {"data": [{"id": MODEL}]} if b" /v1/models " in head else {}
            else:
                await asyncio.sleep(wait)
                node = of_question(json.loads(body))
            said = json.dumps(node).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(said))
            writer.write(said)

    def of_question(question: dict[str, Any]) -> dict[str, Any]:
        many = min(tokens, question["max_tokens"])
        usage = {"prompt_tokens": len(question["prompt"]), "completion_tokens": many}
        choice = {"text": TEXT * many, "token_ids": [TOKEN] * many, "finish_reason": "stop"}
        return {"model": MODEL, "choices": [choice], "usage": usage}

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=512)
        port.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


def write_prompts(path: Path, questions: int, words: int) -> None:
    filler = "The keeper of the lighthouse wrote down the weather every morning. "
    with path.open("w") as file:
        for number in range(questions):
            context = f"Book {number}. " + filler * (words // len(filler.split()))
            file.write(
                json.dumps({"context": context, "question": "Which book is it?", "answers": [str(number)]}) + "\n"
            )


def main() -> None:
    parser = script_parser(__doc__)
    for name, value in {"questions": 2000, "concurrency": 64, "wait-ms": 50, "words": 400, "tokens": 32}.items():
        parser.add_argument(f"--{name}", type=int, default=value, help="default: %(default)s")
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    port: Any = multiprocessing.Queue()
    arguments = port, options.wait_ms / 1000, options.tokens
    server = multiprocessing.get_context("fork").Process(target=serve, args=arguments, daemon=True)
    server.start()
    with tempfile.TemporaryDirectory() as folder:
        tell(measured(Path(folder), port.get(timeout=60), options), options.json)
    server.kill()


def measured(folder: Path, port: int, options: Any) -> dict[str, object]:
    write_prompts(folder / "prompts.jsonl", options.questions, options.words)
    where = [
        f"engine.url=http://127.0.0.1:{port}/v1",
        "engine.label=bench",
        f"engine.concurrency={options.concurrency}",
    ]
    request = build_request(
        configured(
            [
                "engine=openai",
                "engine.repeat=0",
                *where,
                "benchmark=jsonl",
                f"benchmark.path={folder / 'prompts.jsonl'}",
            ]
        )
    )
    loaded, samples = load_inputs(request)
    run = Run("bench", "bench", loaded, request.benchmark, request.settings)
    with Store(folder / "run") as store:
        made = with_progress(evaluate(run, samples, store), run, samples, store, [], pace_of(run, samples, store.done))
        profile = cProfile.Profile()
        if options.profile:
            profile.enable()
        quarter, peaks = options.questions // 4, []
        started, cpu = time.perf_counter(), time.process_time()
        for count in (quarter, options.questions - quarter):
            for _ in islice(made, count):
                pass
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        list(made)
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    if options.profile:
        profile.disable()
        profile.dump_stats(options.profile)
    assert store.made == options.questions, "a question has no record"
    return {
        "what": "questions that engine=openai asks of a server that answers after wait_ms",
        **{name: getattr(options, name) for name in ("questions", "concurrency", "wait_ms", "tokens")},
        "questions_per_second": round(options.questions / seconds, 1),
        "cpu_seconds_per_1000_questions": round(cpu / options.questions * 1000, 3),
        "peak_mib_after_a_quarter_and_after_all": [round(peak, 1) for peak in peaks],
    }


if __name__ == "__main__":
    main()
