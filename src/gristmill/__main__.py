"""`python -m gristmill`: the same as the command `gristmill`."""

from gristmill._cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
