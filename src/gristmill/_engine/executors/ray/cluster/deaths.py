"""What the errors of Ray reveal about the death of an actor."""

from typing import Any


def is_death(ray: Any, error: BaseException | None) -> bool:
    """Return whether an error of a call means that the actor is gone."""
    return isinstance(error, ray.exceptions.RayActorError)


def is_loss(ray: Any, error: BaseException) -> bool:
    """Return whether the node of an actor is gone, so that no task killed it.

    Ray does not know yet that a node is gone when a call fails: the actor is just unavailable.
    """
    is_unavailable = isinstance(error, ray.exceptions.ActorUnavailableError)
    return is_unavailable or "its node has died" in str(error)


def cause_of_death(error: BaseException) -> str:
    r"""Return the last line of an error of Ray, which has the reason.

    >>> cause_of_death(RuntimeError("The actor died.\nIts process was killed."))
    'Its process was killed'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else type(error).__name__
