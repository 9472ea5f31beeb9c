"""A transform whose module takes two seconds of a core to import, as large libraries do."""

import time
from typing import Any

IMPORT_S = 2.0


def transform(record: Any) -> Any:
    """Return a record unchanged."""
    return record


_begin = time.process_time()
while time.process_time() < _begin + IMPORT_S:
    pass
