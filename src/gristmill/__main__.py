"""`python -m gristmill`: the same as `gristmill`."""

from gristmill.command import main

if __name__ == "__main__":
    raise SystemExit(main())
