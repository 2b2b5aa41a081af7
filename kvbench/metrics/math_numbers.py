r"""The number that a final answer in LaTeX is: "N = 33", "33^\circ", "33\text{ ways}", "\$33", "\frac{66}{2}".

The rule is the common graders', Math-Verify 0.9 and Qwen2.5-Math's in R-KV (Zefan-Cai/R-KV at d15c976, evaluation/):
units and typefaces around a number are removed, and sums, products, powers and fractions of numbers are computed.
tests/metrics/test_math_numbers.py lists the differences from Math-Verify.
"""

import ast
import operator
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

LONGEST = 200  # characters of an answer that is read
LARGEST = 64  # of an exponent
_NUMBER = r"\d+(?:\.\d*)?|\.\d+"
# An integer, a decimal number or a fraction in a sentence, with its sign and with commas if there are any.
_IN_A_LINE = re.compile(r"(?<![\w.,/])[-+]?\d+(?:,\d+)*(?:\.\d+)?(?:/\d+)?")
_TYPEFACE = r"\\(?:(?:text|math)(?:bf|rm|it|sf|tt|normal)?|boldsymbol|bm|[mhf]box)\s*"
_UNIT = re.compile(rf"(?<=[\d.)}}\]])\s*{_TYPEFACE}\{{[^{{}}]*\}}(?:\s*\^\s*\{{?\d\}}?)?$")
_WORDS = re.compile(r"(?<=\d)(?:\s+[A-Za-z][A-Za-z .]*[A-Za-z](?:\^\{?\d\}?)?|st|nd|rd|th)$")
_RELATION = re.compile(r"=|\\(?:approx|equiv|to|Rightarrow|implies|therefore)(?![A-Za-z])")
_REPLACED = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (
            r"\\!|\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle|(?:normal|large|Large)(?:size)?|bf|rm)(?![A-Za-z])",
            "",
        ),
        (r"\\[,;: \n]|\\q?quad(?![A-Za-z])|[~\s]", " "),
        (r"\{,\}", ","),
        (r"\s*\^\s*\{?\s*\\(?:circ|degree)\s*\}?|°|\\degree(?![A-Za-z])", ""),
        (r"\\?\$|\\pounds(?![A-Za-z])|[€£]|\\[()\[\]]", ""),
        (r"\s*\\[pb]?mod\s*(?:\{\d+\}|\d+)\s*$|_\{?10\}?\s*$", ""),
    )
]
_OPERATORS: dict[type[ast.operator], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_SIGNS: dict[type[ast.unaryop], Callable[..., Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}


def number(answer: str) -> Fraction | None:
    """The number that an answer is; None where it is several numbers, a multiple of an unknown, or a word."""
    if len(answer) > LONGEST:
        return None
    text = answer
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    *before, text = _RELATION.split(text)
    if any("," in re.sub(r"\([^()]*\)", "", part) for part in before):
        return None  # several equations
    return _value(_bare(text))


def last_number(line: str) -> Fraction | None:
    """The last number of a sentence; None where it has none."""
    numbers = _IN_A_LINE.findall(line)
    return number(numbers[-1]) if numbers else None


def _bare(text: str) -> str:
    """The text without full stop, units, typefaces and braces."""
    text = text.strip().removesuffix(".")
    while True:
        before = text
        text = text.strip(" \"'").lstrip(":")
        text = _WORDS.sub("", _UNIT.sub("", text))
        text = re.sub(rf"{_TYPEFACE}\{{([^{{}}]*)\}}", r"\1", text)
        text = re.sub(r"^(?:\\?\{|\[)(.*?)(?:\\?\}|\])$", r"\1", text)
        if text == before:
            return text


def _value(text: str) -> Fraction | None:
    """The value of an arithmetic expression in LaTeX."""
    text = re.sub(r"\b\d{1,3}(?:,\d{3})+\b", lambda digits: digits[0].replace(",", ""), text)
    text = re.sub(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r"((\1)/(\2))", text)
    text = re.sub(r"\\(?:cdot|times)(?![A-Za-z])", "*", text)
    text = re.sub(r"\^\s*(?:\{([^{}]*)\}|(\d))", r"**(\1\2)", text)
    if not re.fullmatch(rf"(?:{_NUMBER}|[-+*/() ])+", text) or "//" in text:
        return None
    plain = re.sub(r"(?<![\d.])0+(?=\d)", "", text)
    try:
        return _evaluated(ast.parse(plain.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def _evaluated(node: ast.expr) -> Fraction:
    """The value of a parsed expression. Raises ValueError where it is no arithmetic, or would take forever."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return Fraction(str(node.value))
    if isinstance(node, ast.UnaryOp):
        return Fraction(_SIGNS[type(node.op)](_evaluated(node.operand)))
    if not isinstance(node, ast.BinOp):
        raise ValueError("no arithmetic")
    left, right = _evaluated(node.left), _evaluated(node.right)
    if isinstance(node.op, ast.Pow) and (right.denominator != 1 or abs(right) > LARGEST or abs(left) > 10**6):
        raise ValueError("a power that is not computed")
    return Fraction(_OPERATORS[type(node.op)](left, right))
