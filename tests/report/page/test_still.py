"""Pages without scripts: their tables on a desktop and a phone, and text that stays text."""

import pytest

from kvbench.report.page.still import bullets, document, marked, table


def test_code_between_backticks_is_marked_and_all_else_is_text():
    assert marked("`kvbench verify` <b> & one ` alone") == "<code>kvbench verify</code> &lt;b&gt; &amp; one ` alone"


@pytest.mark.heavy
def test_rows_become_blocks_on_a_phone_and_nothing_scrolls_sideways(driver, tmp_path):
    header = ["method", *(f"r_bytes ≤ 0.{i}" for i in range(1, 9))]
    rows = [[name, *["0.914 [0.82, 0.97] at 0.200, #1"] * 7, ""] for name in ("SnapKV", "x" * 90)]
    path = tmp_path / "page.html"
    path.write_text(document("A <title>", [bullets(["a `rule`"]), table(header, rows)]), encoding="utf-8")
    seen = {}
    for width in (390, 1366):
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
        )
        driver.get(path.as_uri())
        run = driver.execute_script
        assert run("return document.documentElement.scrollWidth <= innerWidth")
        assert run("return document.querySelector('h1').textContent") == "A <title>"
        parts = "const row = document.querySelector('tbody tr'); return [...row.children].map(e => e.offsetTop)"
        seen[width] = run(parts)
        shown = run("return getComputedStyle(document.querySelector('tbody tr').lastElementChild).display")
        assert shown == ("none" if width == 390 else "table-cell")  # a cell without text
        inside = run("const e = document.querySelector('.scroll'); return e.scrollWidth <= e.clientWidth")
        assert inside or width == 1366
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert len({*seen[390][:-1]}) == 8 and len({*seen[1366]}) == 1
