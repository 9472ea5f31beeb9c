import argparse

import pytest

from gristmill._cli.sizes import parse_size


@pytest.mark.parametrize("string", ["", "0", "-1", "1.5.2", "MB", "5 bananas"])
def test_a_string_that_is_not_a_size_is_refused(string: str):
    with pytest.raises(argparse.ArgumentTypeError, match="must be a size such as 256MB"):
        parse_size(string)
