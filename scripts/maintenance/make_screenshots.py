"""The pictures of the page and of the documentation site in docs/images, taken in headless Chromium.

RUN are the folders of two runs that the page compares, the first beside the second; those of docs/images are of

    python -m kvbench 'method=[full,streaming_llm,h2o,snapkv,pyramidkv,kivi]' 'ratio=[0.2,0.4]' \\
        'benchmark.lengths=[512,1024]' benchmark.seeds=2 question=visible     # and question=hidden
    make docs
    python -m scripts.maintenance.make_screenshots RUN RUN

Needs chromium, chromedriver and kvbench's extra `dev`.
"""

import argparse
import base64
import io
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image

from kvbench.report.page.command import write
from kvbench.report.page.run_data import read_run
from scripts.frame import script_parser
from tests.support.browser import chromium
from tests.support.page import Page

ROOT = Path(__file__).parents[2]
LARGEST = 250_000  # bytes of a picture
DESKTOP, PHONE = (1280, 900), (390, 844)
PAGE, SITE = "#plot .point", "article h1"  # what is there once all is drawn


@dataclass(frozen=True)
class Shot:
    """A picture: its name, what it shows, the window, the theme, and the element that stands on top."""

    name: str
    address: str
    window: tuple[int, int]
    ready: str
    dark: bool = False
    top: str = ""


def main() -> None:
    options = _arguments()
    with tempfile.TemporaryDirectory() as folder, chromium() as driver:
        page = write(options.runs, Path(folder) / "page.html").resolve().as_uri()
        for shot in [*of_page(page, options.runs), *of_site(options.site.resolve().as_uri())]:
            path = options.out / f"{shot.name}.png"
            path.write_bytes(reduced(taken(driver, shot)))
            print(f"{path} ({path.stat().st_size / 1000:.0f} kB)")


def of_page(page: str, runs: list[Path]) -> list[Shot]:
    """The comparison on a desktop and a phone; a sample whose settings differ, once of both runs, dark."""
    beside = {"beside": runs[1].resolve().name}
    sample = {**beside, "sample": telling_sample(runs[0])}
    return [
        Shot("page-desktop", f"{page}#{urlencode(beside)}", (1280, 1650), PAGE),
        Shot("page-phone", f"{page}#{urlencode(beside)}", (390, 1100), PAGE, top="#plot"),
        Shot("report-sample", f"{page}#{urlencode({'sample': sample['sample']})}", (1280, 1250), PAGE),
        Shot("page-dark", f"{page}#{urlencode(sample)}", (1280, 1250), PAGE, dark=True),
    ]


def of_site(site: str) -> list[Shot]:
    """The home page on a desktop, and the page about methods on a phone."""
    return [
        Shot("site-desktop", f"{site}/index.html", DESKTOP, SITE),
        Shot("site-phone", f"{site}/methods.html", PHONE, SITE),
    ]


def telling_sample(run: Path) -> str:
    """The sample whose scores differ most between settings; one with the needle in the middle where there is such."""
    made, _ = read_run(run)
    scores: dict[int, list[float]] = {}
    for sample, score in zip(made["records"]["sample"], made["records"]["scores"][made["metrics"][0]], strict=True):
        scores.setdefault(sample, []).append(score)
    depths = made["samples"].get("property depth", [50] * len(scores))
    return made["samples"]["id"][max(scores, key=lambda sample: (depths[sample] == 50, len(set(scores[sample]))))]


def taken(driver, shot: Shot) -> bytes:
    """The picture as a PNG."""
    width, height = shot.window
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if shot.dark else "light"}]
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    driver.get("about:blank")  # a fragment alone would not load the page anew
    driver.get(shot.address)
    page = Page(driver)
    page.until(lambda: page.all(shot.ready))
    if shot.top:
        page.js("document.querySelector(arguments[0]).scrollIntoView()", shot.top)
    page.js("document.activeElement.blur()")
    return base64.b64decode(driver.execute_cdp_cmd("Page.captureScreenshot", {})["data"])


def reduced(png: bytes) -> bytes:
    """The picture in 256 colours, or as many as fit into LARGEST bytes."""
    whole = Image.open(io.BytesIO(png)).convert("RGB")
    for colours in (256, 128, 64):
        made = io.BytesIO()
        # the method that keeps the few colours of small marks
        few = whole.quantize(colours, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(made, "PNG", optimize=True)
        if made.tell() <= LARGEST:
            return made.getvalue()
    raise SystemExit(f"a picture of {whole.size} does not fit into {LARGEST} bytes")


def _arguments() -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("runs", nargs=2, type=Path, metavar="RUN")
    parser.add_argument(
        "--site", type=Path, default=ROOT / "build/site", help="the documentation, as `make docs` builds it"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "docs/images")
    options = parser.parse_args()
    if not (options.site / "index.html").is_file():
        parser.error(f"there is no site in {options.site}: `make docs` builds it")
    return options


if __name__ == "__main__":
    main()
