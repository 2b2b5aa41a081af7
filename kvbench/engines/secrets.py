"""Keys of servers, from the environment or a file; no text that is shown or stored has them."""

import os
from pathlib import Path

from kvbench.errors import UserError
from kvbench.utils.regular_files import read_text


class Secret:
    """A key, whose text `value` alone gives: it has no representation."""

    def __init__(self, value: str):
        self.value = value

    def __repr__(self) -> str:
        return "Secret()"

    def out_of(self, text: str) -> str:
        """The text with the key crossed out."""
        return text.replace(self.value, "[key]") if self.value else text


def read_secret(env: str | None, file: str | None) -> Secret | None:
    """The key in the environment variable `env`, or in `file`; None where neither is named.

    Raises UserError where it is missing, empty or cannot stand in a header.
    """
    if env is not None and file is not None:
        raise UserError("engine.key_env and engine.key_file exclude each other: give one")
    if env is not None:
        value, where = os.environ.get(env, ""), f"engine.key_env={env}: the environment variable"
    elif file is not None:
        where = f"engine.key_file={file}: the file"
        try:
            value = read_text(Path(file).expanduser())
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{where} cannot be read: {getattr(error, 'strerror', None) or 'not text'}") from error
    else:
        return None
    if not (value := value.strip()):
        raise UserError(f"{where} is {'empty' if file else 'not set'}, and should hold the server's key")
    if not value.isascii() or not value.isprintable():
        raise UserError(f"{where} has characters that no key has")
    return Secret(value)
