"""`kvbench served` beside loads whose time was over before all of their requests were sent."""

from kvbench.runner import served
from tests.support.paths import DATA
from tests.support.served_runs import engine_record, load_record, write

CUT = {"requested": {"requests": 10, "warmup": 2, "seconds": 9.0}, "answered": 14, "unfinished": 1}


def test_requests_that_were_never_sent_are_told_here_too(tmp_path, capsys):
    """The figures, and the advice, are of the others alone."""
    write(tmp_path / "answers", [engine_record("f16", number, 1.0, None) for number in range(9)])
    whole, cut = (load_record("f16", rate, [9.0, 8.0], [50.0, 51.0], **more) for rate, more in ((1.0, {}), (4.0, CUT)))
    write(tmp_path / "loads", [whole, cut])
    assert served.main([str(tmp_path), "--report", f"q8_0={DATA / 'aiperf_report.json'}"]) == 0
    (told,) = (" ".join(part.split()) for part in capsys.readouterr().out.split("; ") if "never sent" in part)
    assert "f16, 4 at once: 5 of 20 requests were never sent within benchmark.seconds=9" in told
