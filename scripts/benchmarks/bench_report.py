"""The page of 36,000 records: CPU time to build it, and time from opening it to drawn charts and to an open sample.

Writes made-up runs as the store would (needles, 12 settings, 32 layers), builds their page in a process of its own and
opens it in headless Chromium. Needs chromium, chromedriver and kvbench's extra `dev`.

    python -m scripts.benchmarks.bench_report --json results/benchmarks/report.json
"""

import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from kvbench.cache.kept_positions import encode
from scripts.frame import arguments, tell
from tests.support.browser import chromium
from tests.support.page import Page
from tests.support.report_run import manifest, record, sample_row, write_run

RATIOS = {"full": (None,), "snapkv": (0.1, 0.2, 0.4), "h2o": (0.1, 0.2, 0.4), "pyramidkv": (0.1, 0.2, 0.4)}
SETTINGS = [f"{name} {ratio}" if ratio else name for name, ratios in RATIOS.items() for ratio in ratios]
SETTINGS += ["kivi", "knorm 0.2"]
LAYERS, SEGMENTS, TOKENS = 32, 64, 4096
LENGTHS, DEPTHS = (1024, 2048, 4096), (0, 25, 50, 75, 100)
TEXT = "The beekeeper painted the quiet harbour before the concert, although the door was locked. " * 11
REPEATS = 5  # openings of the page
# Notes the time since the page was opened when its first chart has marks, looking in every frame.
WATCH = """(function look() {
  if (document.querySelector('#plot .point')) window.drawnAt = performance.now();
  else requestAnimationFrame(look);
})()"""


def main() -> None:
    options = arguments(__doc__, records=36_000)
    rows = [measured(options.records, runs) for runs in (1, 2)]
    tell({"rows": rows, "load_average": round(os.getloadavg()[0], 1)}, options.json)


def measured(records: int, runs: int) -> dict:
    """The page of `records` records in so many runs."""
    samples = records // runs // len(SETTINGS)
    with tempfile.TemporaryDirectory() as folder:
        folders = [made_run(Path(folder) / f"run-{number}", number, samples) for number in range(runs)]
        out = Path(folder) / "page.html"
        times = built(folders, out)
        size = {"page_mb": round(out.stat().st_size / 1e6, 1)}
        return {"records": runs * samples * len(SETTINGS), "runs": runs, **times, **size, **opened(out, runs)}


def made_run(folder: Path, number: int, samples: int) -> Path:
    """A run of needles with `samples` samples under every setting; odd runs have a hidden question."""
    rng = random.Random(number)
    positions = [
        [encode([float(rng.random() < 0.4) for _ in range(SEGMENTS)]) for _ in range(LAYERS)] for _ in range(64)
    ]
    question = "hidden" if number % 2 else "visible"
    rows, texts = [], []
    for i in range(samples):
        place = {"length": LENGTHS[i % 3], "depth": DEPTHS[i // 3 % 5]}
        name, answer = f"needle-{place['length']}-{place['depth']}-{i}", str(rng.randrange(10**6, 10**7))
        evidence = [{"at": 40 * place["depth"], "text": f"{TEXT[:150]} The number is {answer}. {TEXT[:150]}"}]
        texts.append(sample_row(name, f"{TEXT} What?", answers=[answer], evidence=evidence, meta=place))
        for setting in SETTINGS:
            kept = [TOKENS * (0.2 + 0.01 * layer) for layer in range(LAYERS)]
            layers = {"kept_per_layer": kept, "nominal_per_layer": kept, "kept_positions": rng.choice(positions)}
            fields = {"benchmark": "niah", "question": question, "prompt_tokens": TOKENS, "answers": [answer]}
            text = f"The secret number is {rng.randrange(10**6, 10**7)}, as the text says."
            rows.append(record(name, setting, float(rng.random() < 0.7), text, **fields | place | layers))
    return write_run(folder, rows, texts, [manifest(settings=SETTINGS, benchmark={"name": "niah"})])


def built(runs: list[Path], out: Path) -> dict:
    """CPU time (user and system) and peak memory of `kvbench report`, a process of its own."""
    process = subprocess.Popen([sys.executable, "-m", "kvbench", "report", *runs, "--out", out])
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit("the page was not built")
    times = {"build_user_s": used.ru_utime, "build_system_s": used.ru_stime, "build_peak_gib": used.ru_maxrss / 2**20}
    return {name: round(value, 2) for name, value in times.items()}


def opened(out: Path, runs: int) -> dict:
    """Medians in seconds: time passed from opening the page to drawn charts, and CPU time of that and of what follows:
    opening a sample, and comparing with the other run."""
    drawn, cpu, sample, compare = [], [], [], []
    with chromium() as driver:
        driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
        page = Page(driver)
        for _ in range(REPEATS):
            driver.get("about:blank")
            before = main_thread(driver)
            driver.get(out.as_uri())
            drawn.append(page.until(lambda: page.js("window.drawnAt")) / 1000)
            cpu.append(main_thread(driver) - before)
            sample.append(seconds(driver, lambda: page.click("#samples a.open")))
            if runs > 1:
                page.js("document.querySelector('dialog').close()")
                compare.append(seconds(driver, lambda: page.choose("#controls label:nth-of-type(4) select", "1")))
    times = {"to_drawn_s": drawn, "load_cpu_s": cpu, "open_sample_cpu_s": sample, "compare_cpu_s": compare}
    return {name: round(statistics.median(values), 3) for name, values in times.items() if values}


def seconds(driver, act: Callable[[], object]) -> float:
    """CPU time of the page's main thread that `act` takes."""
    before = main_thread(driver)
    act()
    return main_thread(driver) - before


def main_thread(driver) -> float:
    """Seconds of CPU time that the page's main thread has taken."""
    metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")


if __name__ == "__main__":
    main()
