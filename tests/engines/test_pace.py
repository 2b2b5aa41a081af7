"""The time that is left of a run of engines, and its tokens per second."""

from kvbench.engines.pace import Pace
from kvbench.runner.progress import left


def test_answers_tell_the_time_that_is_left_and_tokens_each_second():
    now = [0.0]
    pace = Pace(3, clock=lambda: now[0])
    assert left(pace) == "measuring the time left"
    now[0] = 10.0
    assert pace.made({"sample": "a", "prompt_tokens": 95, "tokens": [1, 2, 3, 4, 5]})
    assert left(pace) == "about 20 s left, 10 tokens/s"
    pace.made({"sample": "b"})  # a failure counts as an answer too
    assert left(pace) == "about 5 s left, 10 tokens/s"
    pace.made({"sample": "c", "prompt_tokens": 100, "tokens": None})
    assert pace.left() == 0 and left(pace) == ""


def test_nothing_to_do_takes_no_time():
    assert left(Pace(0)) == ""
