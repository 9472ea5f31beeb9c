"""Connect this process to a Ray cluster, with an error within seconds if that is not possible."""

import contextlib
import os
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from gristmill._addresses import strip_credentials
from gristmill._base.extras import load_extra
from gristmill._engine.executors.ray.cluster.cleaner import end_with_program
from gristmill._engine.executors.ray.cluster.probe import OTHER_PORT, explain_no_answer
from gristmill._engine.executors.ray.cluster.runtime_env import for_program
from gristmill._engine.executors.ray.cluster.sigterm import sigterm_kept
from gristmill.errors import WorkerError
from gristmill.options import RayOptions

_TOKEN_REMEDY = (
    ". The cluster requires a token: set RAY_AUTH_MODE=token, and copy ~/.ray/auth_token from the "
    "machine of its head, or pass `ray get-auth-token` there as RAY_AUTH_TOKEN."
)


def connect(options: RayOptions) -> Any:
    """Connect to the cluster of some options, unless this process is connected to it.

    Returns:
        The module `ray`.

    Raises:
        MissingExtraError: Ray is not installed.
        WorkerError: There is no cluster at the address, or this process is connected to another,
            or without the folders of `runtime_env`.
    """
    ray: Any = load_extra("ray", extra="ray", wanted_by="`RayOptions`")
    if ray.is_initialized():
        _check_same_cluster(options.address, ray.get_runtime_context().gcs_address)
        _check_folders(ray, options)
        return ray
    address = _find_address(options)
    try:
        _call_in_lasting_thread(
            lambda: ray.init(
                address=address,
                configure_logging=False,  # the loggers are those of the program
                log_to_driver=True,
                include_dashboard=None if address != "local" else False,
                runtime_env=for_program(options.runtime_env) or None,
            )
        )
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        remedy = _TOKEN_REMEDY if "AuthenticationError" in str(error.__cause__) else ""
        raise WorkerError(
            f"Ray could not connect to the cluster at {address!r}: {error}{remedy}"
        ) from error
    if address == "local":
        context: Any = ray.get_runtime_context()
        end_with_program(f"{context.get_temp_dir()}/{context.get_session_name()}")
    return ray


def _call_in_lasting_thread(function: Callable[[], object]) -> None:
    """Call a function in a thread that ends with the program.

    Linux kills the processes of a local cluster when the thread that has started them ends, and
    Ray then ends the program. The thread that this is called from ends with an epoch.
    """
    answers: SimpleQueue[BaseException | None] = SimpleQueue()

    def call() -> None:
        try:
            with sigterm_kept():
                function()
        except BaseException as error:
            answers.put(error)
        else:
            answers.put(None)
            threading.Event().wait()

    threading.Thread(target=call, name="gristmill-ray", daemon=True).start()
    error = answers.get()
    if error is not None:
        raise error


def _find_address(options: RayOptions) -> str:
    """Return an address that a cluster responds at, or `"local"`.

    For the cluster of this machine it is `"auto"`: then Ray uses the token of this user, if there
    is one.
    """
    address = options.address or os.environ.get("RAY_ADDRESS")
    if address is None or address == "auto":
        found = _last_started()
        if found is not None and explain_no_answer(found, options.start_timeout_s) is None:
            return "auto"
        if address is None:
            return "local"
        raise WorkerError(
            "`address` is 'auto', but no Ray cluster runs on this machine. Start one with "
            "`ray start --head`, or leave `address` out."
        )
    if address == "local":
        return address
    reason = explain_no_answer(address, options.start_timeout_s)
    if reason is not None:
        remedy = "Start one there with `ray start --head`, which prints its address"
        if reason == OTHER_PORT:
            remedy = "Use the address that `ray start --head` prints, whose port is 6379 by default"
        raise WorkerError(
            f"There is no Ray cluster at {strip_credentials(address)!r}: {reason}. {remedy}, or "
            "leave `address` out."
        )
    return address


def _last_started() -> str | None:
    """Return the address of the last cluster that `ray start` started on this machine, if any."""
    folder = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir()))
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return (folder / "ray" / "ray_current_cluster").read_text().strip() or None
    return None


def _check_same_cluster(wanted: str | None, current: str) -> None:
    if wanted is None or wanted in ("auto", "local") or _resolved(wanted) == _resolved(current):
        return
    raise WorkerError(
        f"`address` is {strip_credentials(wanted)!r}, but this process is connected to the Ray "
        f"cluster at {current!r}. Leave `address` out to use that, or call `ray.shutdown()` first."
    )


def _check_folders(ray: Any, options: RayOptions) -> None:
    """Raise if a runtime environment has folders that Ray did not send when it connected."""
    sent: Any = ray.get_runtime_context().runtime_env
    missing = [name for name in for_program(options.runtime_env) if not sent.get(name)]
    if missing and missing != ["excludes"]:
        raise WorkerError(
            f"Ray sends the folders in {' and '.join(map(repr, missing))} of `runtime_env` only "
            "when it connects, but this process is connected already. Pass them to "
            "`ray.init(runtime_env=...)`, or do not call `ray.init`: the first loader with "
            "`RayOptions` connects, and sends its folders."
        )


def _resolved(address: str) -> str:
    """Return an address with the number of its host."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError):
        host = socket.gethostbyname(host)
    if host.startswith("127."):
        with contextlib.suppress(OSError):
            host = socket.gethostbyname(socket.gethostname())
    return f"{host}:{port}"
