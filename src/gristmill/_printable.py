"""Make strings from data files safe to print to a terminal."""


def printable(string: str, *, keep: str = "") -> str:
    r"""Return a string with its invisible characters escaped.

    Names and keys come from files. Written to a terminal, an escape sequence in them could hide
    text, change the title or answer a prompt. Bytes of a file name that are not UTF-8 are escaped
    too: they could not be encoded.

    >>> printable("label\x1b[2J"), printable("größe")
    ('label\\x1b[2J', 'größe')

    Args:
        string: The string.
        keep: Characters that are not escaped, such as the line ends of a message of ours.
    """
    if string.isprintable():
        return string
    return "".join(
        character
        if character.isprintable() or character in keep
        else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in string
    )
