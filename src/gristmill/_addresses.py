"""Remove credentials from the addresses in messages, descriptions and files."""

import re

_USER_INFO = re.compile(r"(?<=://)[^\s/]*@")
"""What precedes the last `@` of the host, such as `user:password@`."""

_QUERY = re.compile(
    r"""(?P<address>[a-zA-Z][\w+.-]*://[^\s?#]*)   # as far as the path
        [?#]\S*?                                   # the query and the fragment
        (?=['"`)>\]}.,;:]*(?:\s|$))                # without the punctuation after the address
    """,
    re.VERBOSE,
)


def strip_credentials(text: str) -> str:
    r"""Return a string without the user names, passwords and queries of the addresses in it.

    A query may be a signature that allows anyone to read the file. Paths of local files stay as
    they are, even with a `?` in them.

    >>> strip_credentials("Cannot read 'https://me:secret@host/a.csv?signature=abc'.")
    "Cannot read 'https://host/a.csv'."
    >>> strip_credentials("What is a?b=c")
    'What is a?b=c'
    """
    if "://" not in text:
        return text
    return _QUERY.sub(r"\g<address>", _USER_INFO.sub("", text))
