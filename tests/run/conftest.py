"""What the tests of run share."""

from tests.support.unrendered import unrendered

__all__ = ["unrendered"]
