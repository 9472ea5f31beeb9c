"""Runtime environments of users: what Ray accepts for an actor, and what for a program only.

Ray sends folders of this machine to the others only when the program connects. They are sent once,
so an actor that is started later has the same modules, even if a file has changed by then.
"""

import os
from collections.abc import Mapping
from typing import Any, cast

_FOLDER_FIELDS = ("working_dir", "py_modules", "excludes")


def for_program(runtime_env: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fields that Ray accepts only when it connects: those with folders.

    >>> for_program({"working_dir": ".", "env_vars": {"A": "1"}})
    {'working_dir': '.'}
    >>> for_program({"working_dir": "s3://bucket/code.zip"})
    {}
    """
    fields = {name: (runtime_env or {}).get(name) for name in _FOLDER_FIELDS}
    modules = cast("list[object]", fields["py_modules"] or [])
    if not any(map(_is_local, [fields["working_dir"], *modules])):
        return {}
    return {name: value for name, value in fields.items() if value is not None}


def for_actor(runtime_env: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the other fields, which Ray accepts for each actor.

    A set of strings iterates in the same order in all actors, as in all worker processes.

    >>> for_actor({"working_dir": ".", "env_vars": {"PYTHONHASHSEED": "1", "A": "1"}})
    {'env_vars': {'PYTHONHASHSEED': '1', 'A': '1'}}
    """
    sent = for_program(runtime_env)
    fields = {name: value for name, value in (runtime_env or {}).items() if name not in sent}
    seed = os.environ.get("PYTHONHASHSEED", "0")
    return {**fields, "env_vars": {"PYTHONHASHSEED": seed, **(fields.get("env_vars") or {})}}


def _is_local(path: object) -> bool:
    return path is not None and "://" not in str(path)
