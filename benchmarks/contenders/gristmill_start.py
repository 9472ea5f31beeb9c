"""Commands for new interpreters that start gristmill."""


def imports() -> list[str]:
    """Import the package."""
    return ["-c", "import numpy, gristmill"]


def imports_loader() -> list[str]:
    """Import the package and its loader, which is imported when it is first used."""
    return ["-c", "import numpy; from gristmill import DataLoader"]


def prints_help() -> list[str]:
    """Print the help of the command line."""
    return ["-m", "gristmill", "--help"]
