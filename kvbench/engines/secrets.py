"""Keys of servers, from the environment or a file; they never appear in texts that are shown or stored."""

import os
from pathlib import Path

from kvbench.errors import UserError
from kvbench.utils.regular_files import read_text


class Secret:
    """A key. Only `value` gives its text; its representation does not."""

    def __init__(self, value: str):
        self.value = value

    def __repr__(self) -> str:
        return "Secret()"

    def out_of(self, text: str) -> str:
        """The text with [key] instead of the key."""
        return text.replace(self.value, "[key]") if self.value else text


def read_secret(env: str | None, file: str | None) -> Secret | None:
    """The key in the environment variable `env`, or in `file`; None if neither is named.

    Raises UserError if the key is missing, empty or not valid in an HTTP header.
    """
    if env is not None and file is not None:
        raise UserError("engine.key_env and engine.key_file exclude each other: set one of them")
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
        raise UserError(f"{where} is {'empty' if file else 'not set'}, but should hold the server's key")
    if not value.isascii() or not value.isprintable():
        raise UserError(f"{where} has characters that a key cannot have")
    return Secret(value)
