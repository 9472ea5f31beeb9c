"""Let a worker process have Grain among its imported modules without the time of importing it.

Libraries look for Grain in `sys.modules` before they ask whether they run inside its pipelines:
the preprocessing layers of Keras do. Importing Grain takes a second, and few transforms use it.
"""

import sys
from importlib.util import LazyLoader, find_spec, module_from_spec


def add_lazy_grain() -> None:
    """Add `grain` to the imported modules. It is loaded when a program imports it or a name of it.

    Nothing happens if it has been imported or is not installed.
    """
    spec = None if "grain" in sys.modules else find_spec("grain")
    if spec is None or spec.loader is None:
        return
    spec.loader = LazyLoader(spec.loader)
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
