"""Keys of servers stay out of every text."""

import pytest

from kvbench.engines.secrets import Secret, read_secret
from kvbench.errors import UserError


def test_a_key_has_no_representation_and_is_crossed_out():
    key = Secret("sk-1")
    assert "sk-1" not in repr(key) + str(key) + f"{key!r}"
    assert key.out_of("Bearer sk-1 is wrong: sk-1") == "Bearer [key] is wrong: [key]"


def test_no_key_is_none_and_one_that_no_header_can_have_is_refused(monkeypatch, tmp_path):
    assert read_secret(None, None) is None
    for value in ("ключ", "a\nb"):
        monkeypatch.setenv("A_KEY", value)
        with pytest.raises(UserError, match="has characters that a key cannot have") as error:
            read_secret("A_KEY", None)
        assert value not in str(error.value)
    (tmp_path / "key").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="cannot be read: not text"):
        read_secret(None, str(tmp_path / "key"))
