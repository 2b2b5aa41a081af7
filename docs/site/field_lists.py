"""Griffe extension: lines of a docstring such as `window   tokens at the end` become a list on the site."""

import re

import griffe

FIELD = re.compile(r"^ {0,2}(\w[\w, .=*]*?) {2,}(\S.*)$")


class FieldLists(griffe.Extension):
    """A field's name, two or more spaces, its meaning; deeper indented lines continue it."""

    def on_object(self, *, obj: griffe.Object, **kwargs) -> None:
        if obj.docstring:
            obj.docstring.value = as_lists(obj.docstring.value)


def as_lists(text: str) -> str:
    lines, within, code = [], False, False
    for line in text.splitlines():
        code = code != line.lstrip().startswith("```")
        found = None if code else FIELD.match(line)
        if found and not within and lines and lines[-1]:
            lines.append("")
        if found:
            lines.append(f"- `{found[1]}`: {found[2]}")
        elif within and line.startswith("   "):
            lines.append(f"  {line.strip()}")
        else:
            lines.append(line)
        within = bool(found) or (within and line.startswith("   "))
    return "\n".join(lines)
