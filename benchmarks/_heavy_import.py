"""Takes two seconds of a core to import."""

import time

IMPORT_S = 2.0

_begin = time.process_time()
while time.process_time() < _begin + IMPORT_S:
    pass
