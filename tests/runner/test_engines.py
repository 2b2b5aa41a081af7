"""What a run with engine= refuses before an engine is asked: keys of methods, and samples that it does not answer."""

import re

import pytest

from kvbench.benchmarks import Sample, Sampling, Turn
from kvbench.engines import LlamaCpp, OpenAI
from kvbench.engines.settings import EngineSetting, engine_settings
from kvbench.errors import UserError
from kvbench.runner.engines import check_conversations, connected
from kvbench.runner.request import build_request
from kvbench.utils.checked import checked
from tests.plugin_example.kvbench_example.parrot import Parrot
from tests.support.command import kvbench
from tests.support.given import Given
from tests.support.runs import compose

SERVER = EngineSetting(OpenAI(url="http://127.0.0.1:9/v1"))
DRAWN = Sample("a", "b", (), 4, sampling=Sampling(0))
OWN = Sample("a", "b", (), 4, turns=(Turn("c", max_new_tokens=2),), own_answers=True)


@pytest.mark.parametrize(
    "override, message",
    [
        ("ratio=0.2", "ratio=0.2 is for methods of kvbench"),
        ("budget=64", "budget=64 is for methods of kvbench"),
        ("question=hidden", "question=hidden is for methods of kvbench"),
        ("memory=stream", "memory=stream is for methods of kvbench"),
        ("method=[snapkv,h2o]", r"method=\[snapkv,h2o\] is for methods of kvbench, in whose place engine=… answers"),
        ("method=full", r"method=\[full\] is for methods of kvbench"),
        ("method._target_=my_method.MyMethod", r"method\._target_=my_method\.MyMethod is for methods of kvbench"),
        ("prefill.chunk=64", "prefill.chunk=64 is for methods of kvbench"),
        ("probe=lazy_mass", "probe= observes kvbench's own caches"),
        ("benchmark=speed", "benchmark=speed measures kvbench's own caches"),
        ("engine.k=q9", "unknown engine.k 'q9'"),
    ],
)
def test_what_only_methods_have_is_refused(override, message):
    with pytest.raises(UserError, match=message):
        build_request(compose("engine=llama_cpp", override))


def test_samples_that_an_engine_does_not_answer_are_refused():
    with pytest.raises(UserError, match="'llama_cpp f16/f16' decodes greedily"):
        check_conversations([DRAWN], [SERVER, EngineSetting(LlamaCpp())], False)
    with pytest.raises(UserError, match="distance=true follows a greedy answer"):
        check_conversations([DRAWN], [SERVER], True)
    with pytest.raises(UserError, match="continue from the model's own answers"):
        check_conversations([OWN], [SERVER], False)
    check_conversations([DRAWN], [SERVER], False)


def test_a_frontier_has_no_engines(capsys):
    assert kvbench("frontier", "engine=llama_cpp") == 2
    assert "leave out engine=" in capsys.readouterr().err


@checked(prefix="engine.")
class Nameless(Parrot):
    """An engine of a user's that does not name itself."""

    def __post_init__(self):
        pass


def test_an_engine_without_a_label_is_one_line():
    with pytest.raises(UserError, match=r"^Nameless has no label when it is built: it must give itself a name"):
        engine_settings({"_target_": f"{__name__}.Nameless", "characters": 4})


@checked(prefix="engine.")
class Undescribed(Parrot):
    """An engine of a user's that says nothing of itself, or what no record holds."""

    version: object = None

    def connect(self, reader):
        self.about = self.version and {"version": self.version}


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (None, "Undescribed.about=None must be a dict once the engine is connected"),
        (b"2", "Undescribed.about={'version': b'2'} must be what JSON holds: Object of type bytes"),
    ],
)
def test_an_engine_whose_description_no_record_holds_is_one_line(version, said):
    with pytest.raises(UserError, match=f"^{re.escape(said)}"):
        connected(compose().model, [EngineSetting(Undescribed(version=version))], Given([DRAWN]))
