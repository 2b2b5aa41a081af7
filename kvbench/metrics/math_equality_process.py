"""The process behind `kvbench.metrics.math_equality`: run as a file, it imports nothing of kvbench."""

import json
import sys


def main() -> None:
    """Answer each line, a JSON list of an expression and a text, with a line that is true or false.

    A text without an answer, or one that Math-Verify cannot read, equals nothing. The caller limits the time.
    """
    from math_verify import parse, verify

    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        expression, text = json.loads(line)
        try:
            expected = parse(f"\\boxed{{{expression}}}", parsing_timeout=None)
            right = verify(expected, parse(text, parsing_timeout=None), timeout_seconds=None)
        except Exception:
            right = False
        print(json.dumps(bool(right)), flush=True)


if __name__ == "__main__":
    main()
