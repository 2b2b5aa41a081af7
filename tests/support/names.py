"""Names that a model, a method, a task or a sample may have, and that a console, a file or a plot may take wrongly."""

import itertools

SPECIAL = [
    *("$", "$$", "$x", "a$b$c", "\\frac", "\\", "[", "]", "[/x]", "[bold]", "[link=x]", "{", "}", "%d", "{0}"),
    *("|", "a|b", "&", "#", "_x", "^", "~", "<b>", "*", "**", "`", '"', "'", ",", ";", " "),
    *("=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "a\nb"),
    *("\x1b[31m", "\x1b]0;t\x07", "\x00", "\x7f", "\x9b1m", "\u202e", "日本", "\ud800"),
]
HOSTILE = [*SPECIAL, *("".join(pair) for pair in itertools.product(SPECIAL[::5], SPECIAL[3::7]))]
