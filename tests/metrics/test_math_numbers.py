"""The number of a final answer in LaTeX: as Math-Verify reads it, and where it is read otherwise."""

import pytest

from kvbench.metrics.math_numbers import last_number, number
from tests.support.needs import need, packages

# Forms of an answer, with N for the number: right under both graders, as is the plain number.
DRESSED = r"""
N|0N|N.0|N.00|+N|{N}|(N)|[N]|\left(N\right)|\left[N\right]|\{N\}|$N$|$$N$$|\(N\)|"N"|'N'|N'|\ N|N\,|\;N\;|\quad N
N^\circ|N^{\circ}|N.0^\circ|N^{\circ}\text{C}|\$N|\$ N|\$N.00|\pounds N|\text{\$N}|: N|=N
\text{N}|\textbf{N}|\mathbf{N}|\mathrm{N}|\textbf{(N)}|\mbox{N}|\fbox{N}|\displaystyle N|\displaystyle{N}
N\text{ ways}|N\textrm{ ways}|N\text{.}|N\text{ out of 100}|N \text{ cm}^2|N\,\mathrm{cm}|N\,\text{cm}^3|N\ \text{units}
N\text{ (mod 1000)}|N \mod 1000|x\equiv N \pmod{1000}|N_{10}|N cm|N ways|N minutes|N\text{rd}
N = N|N=0N|m+n = N|x=y=N|p+q=N.0|AB = N|\angle ABC = N^\circ|f(2) = N||S| = N|S_{10} = N|\text{ans}=N|\approx N|\to N
\frac{N}{1}|\dfrac{N}{1}|N/1|N\cdot 1|1\times N|N+0|-(-N)|N^{1}|\therefore N|\Rightarrow N
"""
FORMS = [form for line in DRESSED.replace("||S|", "|¦S¦").split("\n") for form in line.split("|") if form]
FORMS = [form.replace("¦", "|") for form in FORMS]
NUMBERS = ("33", "7", "204", "999")
# No number N under either.
WRONG = [
    "-N",
    "N.5",
    "N0",
    "N\\%",
    "Nx",
    "Nn",
    "N\\pi",
    "N^2",
    "N,1",
    "N, 34",
    "x=1, y=N",
    "N \\text{ or } 34",
    "1/N",
    "",
    "N!",
]
WRONG += [
    "\\sqrt{N}",
    "N = x",
    "\\frac{N}{100}",
    "0.N",
    "N^N^N",
    "N\\text{ mod }100",
    "\\text{about N}",
    "N...",
    "(N",
    "\\infty",
]
# Where Math-Verify 0.9 differs: its answer, and why ours is another.
OTHERWISE = {
    "33°": (False, "the sign that \\circ writes"),
    "33\\degree": (False, "the sign that \\circ writes"),
    "33.": (False, "a full stop in the box"),
    "~33": (False, "a blank"),
    "33\\text{ ways}.": (False, "a full stop in the box"),
    "\\boldsymbol{33}": (False, "a typeface"),
    "\\Large{33}": (False, "a size"),
    "\\bigl(33\\bigr)": (False, "a size"),
    "\\approx33": (False, "a relation, with a blank or without"),
    "\\[33\\]": (False, "the beginning of a formula"),
    "33 \\pmod{1000}": (False, "the remainder that is asked for"),
    "33 cm^2": (False, "a unit, where Math-Verify reads c·m²"),
    "33 dollars": (False, "a unit that its list does not have"),
    "€33": (False, "a currency as $ is one"),
    "\\sqrt{1089}": (True, "a function: not computed here"),
    "|33|": (True, "a function"),
    "\\lfloor 33.5 \\rfloor": (True, "a function"),
    "\\binom{33}{1}": (True, "a function"),
    "32\\frac{2}{2}": (True, "a mixed number: nothing tells it from a product"),
    "33:1": (True, "a ratio"),
    "33,33": (True, "a set, whose members are the same"),
    "33s": (True, "a unit of one letter, which may be an unknown"),
    "33\\ldots": (True, "a number that is not given to its end"),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_dressed_number_is_the_number(form):
    assert [number(form.replace("N", n)) for n in NUMBERS] == [int(n) for n in NUMBERS]


@pytest.mark.parametrize("form", WRONG)
def test_anything_else_is_not(form):
    assert all(number(form.replace("N", n)) != int(n) for n in NUMBERS)


@pytest.mark.parametrize("answer", ["3,3", "3, 3", "3\\,3", "3 3", "3{,}3"])
def test_digits_that_are_parted_are_not_one_number(answer):
    assert number(answer) is None
    assert number("1,033") == number("1{,}033") == 1033  # but thousands are


@pytest.mark.parametrize(
    "answer",
    ["9" * 201, "2^{999999999}", "9^{9^{9^{9}}}", "(" * 150 + "1" + ")" * 150, "1/0", "0^{-1}", "1 if 2 else 3"],
)
def test_what_would_take_for_ever_is_no_number(answer):
    assert number(answer) in (None, 1)


@pytest.mark.parametrize(
    "line, value",
    [
        ("The answer is 33.", 33),
        ("so 33.0", 33),
        ("N = 33^\\circ, that is 33 ways", 33),
        ("so 17-33", 33),
        ("it is -33", -33),
        ("33,000", 33_000),
        ("3,3", None),
        ("it is 66/2.", 33),
        ("none", None),
    ],
)
def test_the_last_number_of_a_line(line, value):
    assert last_number(line) == value


@pytest.mark.heavy
def test_math_verify_reads_the_same_but_for_what_is_listed():
    need("math", packages("math", "math_verify"))
    from math_verify import parse, verify

    def right(answer: str, expected: str) -> bool:
        found = parse(f"So the answer is $\\boxed{{{answer}}}$.", parsing_timeout=None)
        return bool(verify(parse(f"\\boxed{{{expected}}}", parsing_timeout=None), found, timeout_seconds=None))

    pairs = [(form.replace("N", n), n) for form in (*FORMS, *WRONG) for n in NUMBERS]
    assert len(pairs) > 400
    assert [answer for answer, n in pairs if right(answer, n) != (number(answer) == int(n))] == []
    for answer, (verdict, why) in OTHERWISE.items():
        assert right(answer, "33") == verdict != (number(answer) == 33), why
