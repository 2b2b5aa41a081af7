"""What the tests of records share."""

from tests.support.unrendered import unrendered

__all__ = ["unrendered"]
