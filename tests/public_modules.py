"""The modules whose names the reference describes."""

PUBLIC_MODULES = [
    "gristmill",
    "gristmill.checkpoint",
    "gristmill.constants",
    "gristmill.errors",
    "gristmill.experimental",
    "gristmill.exporters",
    "gristmill.monitoring",
    "gristmill.multiprocessing",
    "gristmill.options",
    "gristmill.samplers",
    "gristmill.sharding",
    "gristmill.sources",
    "gristmill.testing",
    "gristmill.transforms",
    "gristmill.types",
]
