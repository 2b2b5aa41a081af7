"""Types with constraints: every bad value is one line with the key, the value and what is allowed."""

import copy
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import pytest
from pydantic import AfterValidator, Field

from kvbench.errors import UserError
from kvbench.utils.checked import Checked, Fraction, Names, NonNegative, Positive, PositiveNumber, Share, checked


def _even(value: int) -> int:
    if value % 2:
        raise ValueError("an even number")
    return value


@checked(prefix="part.")
class Part:
    window: Positive = 1
    sinks: NonNegative | None = 0
    ratio: Share = 0.5
    delta: Fraction = 0.5
    gib: PositiveNumber | None = None
    mode: Literal["sum", "mean"] | None = None
    flag: bool = False
    name: str = ""
    names: Names | None = None
    batches: Annotated[list[Positive | Literal["largest"]], Field(min_length=1)] | None = None
    depths: list[Annotated[int, Field(ge=0, le=9)] | Annotated[float, Field(ge=0, le=9)]] | None = None
    even: Annotated[int, AfterValidator(_even)] = 0

    def __post_init__(self):
        if self.window == 7:
            raise UserError("window=7 is refused by a relation between fields")


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"window": 0}, "part.window=0 must be an integer of at least 1"),
        ({"window": True}, "part.window=True must be an integer of at least 1"),
        ({"window": 1.0}, "part.window=1.0 must be an integer of at least 1"),
        ({"window": "8"}, "part.window='8' must be an integer of at least 1"),
        ({"window": 7}, "window=7 is refused by a relation between fields"),
        ({"sinks": -1}, "part.sinks=-1 must be an integer of at least 0 or null"),
        ({"ratio": 0}, "part.ratio=0 must be a number above 0 and at most 1"),
        ({"delta": 1.5}, "part.delta=1.5 must be a number from 0 to 1"),
        ({"gib": float("inf")}, "part.gib=inf must be a finite number or null"),
        ({"mode": "some"}, "unknown part.mode 'some'. Did you mean 'sum'? Allowed: mean, null, sum"),
        ({"flag": "yes"}, "part.flag='yes' must be true or false"),
        ({"name": 3}, "part.name=3 must be a text"),
        ({"names": ["a", 3]}, "part.names=['a', 3] must be a name or a list of names or null"),
        ({"names": []}, "part.names=[] must be a name or a list of names or null"),
        ({"batches": []}, "part.batches=[] must be a list of at least 1 or null"),
        ({"even": 3}, "part.even=3 must be an even number"),
        ({"windw": 3}, "unknown key in part 'windw'. Did you mean 'window'?"),
    ],
)
def test_a_bad_value_is_one_line(values, line):
    with pytest.raises(UserError) as error:
        Part(**values)
    assert str(error.value).startswith(line)


def test_good_values_stay_what_they_are():
    part = Part(window=3, names="one", batches=[2, "largest"], depths=[1, 2.5], mode="mean")
    assert (part.names, part.batches, part.mode) == (["one"], [2, "largest"], "mean")
    assert [type(depth) for depth in part.depths] == [int, float]


def test_a_parameter_that_is_missing_is_named():
    @checked
    class Needed:
        window: Positive

    with pytest.raises(UserError, match=r"^window is missing$"):
        Needed()
    with pytest.raises(UserError, match=r"^item 2 of depths=10 must be a number from 0 to 9$"):

        @checked
        class Depths:
            depths: list[Annotated[int, Field(ge=0, le=9)] | Annotated[float, Field(ge=0, le=9)]]

        Depths(depths=[0, 10])


@checked
class Base(Checked):
    mode: Literal["sum", "mean"] = "sum"


@dataclass
class Mine(Base):
    """As a user declares it."""

    recent: int = 8
    other: Base | None = None
    seen: int = 0

    def __post_init__(self):
        self.seen += 1


@dataclass(frozen=True, kw_only=True)
class Alone(Checked):
    part: Mine
    layers: tuple[int, ...] = ()


class Further(Mine):
    pass


class Undecorated(Mine):
    recent: int = 16


class Below(Undecorated):
    pass


class ByHand(Mine):
    recent = 16

    def __init__(self, text):
        super().__init__(mode=text)


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (lambda: Mine(mode="men"), "unknown mode 'men'. Did you mean 'mean'? Allowed: mean, sum"),
        (
            lambda: Mine(mod="sum"),
            "unknown parameter of Mine 'mod'. Did you mean 'mode'? Allowed: mode, other, recent, ",
        ),
        (lambda: Mine("sum", "8"), "recent='8' must be an integer"),
        (lambda: Mine(other=3), "other=3 must be a Base or null"),
        (lambda: Further(recent=0.5), "recent=0.5 must be an integer"),
        (lambda: ByHand("men"), "unknown mode 'men'"),
        (lambda: replace(Mine(), mode="men"), "unknown mode 'men'"),
        (lambda: Alone(), "part is missing"),
        (lambda: Undecorated(), "Undecorated sets recent without effect: put @dataclass above the class"),
        (lambda: Below(), "Undecorated sets recent without effect"),
        (lambda: Alone(part=3), "part=3 must be a Mine"),
        (lambda: Alone(part=Mine(), layers=[1]), "layers=[1] must be a tuple"),
    ],
)
def test_a_plain_dataclass_of_a_checked_base_is_checked(made, line):
    with pytest.raises(UserError) as error:
        made()
    assert str(error.value).startswith(line)


def test_a_plain_dataclass_stays_what_it_is():
    made = Mine("mean", other=Base())
    assert (made.mode, made.recent, made.other, made.seen) == ("mean", 8, Base(), 1)
    assert copy.deepcopy(made) == made == replace(made, seen=0) and type(ByHand("mean")) is ByHand
    assert Alone(part=Further()).part == Further() and Alone(part=made, layers=(1,)).layers == (1,)


@pytest.mark.parametrize("annotation", ["Later", tuple[...], type[3]])
def test_annotations_that_cannot_be_checked_check_nothing(annotation):
    @dataclass
    class Odd(Checked):
        number: annotation = 3

    assert Odd(number="x").number == "x"
    with pytest.raises(TypeError, match="unexpected keyword argument 'nmber'"):
        Odd(nmber=4)


def test_a_class_without_parameters_takes_none():
    class Nothing(Checked):
        recent: int = 8

    assert Nothing().recent == 8
    with pytest.raises(TypeError, match=r"Nothing\(\) takes no arguments"):
        Nothing(recent=4)
