"""HOW many elements become one."""

from gristmill.batch._stack import stack

__all__ = ["stack"]
