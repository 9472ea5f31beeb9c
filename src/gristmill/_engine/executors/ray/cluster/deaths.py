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
    r"""Return what an actor died of, as the end of a sentence that ends in "by".

    The last line of an error of Ray has the reason, and what may be the reason for that.

    >>> cause_of_death(RuntimeError("The actor died.\nIts node has died. Node Id: 5f"))
    "an end that Ray explains by 'Its node has died'"
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    _, _, detail = lines[-1].rpartition("Worker exit detail: ")
    if "exits with a connection error" in detail:  # all that Ray knows
        return "a crash or a kill of its process, such as for lack of memory"
    return f"an end that Ray explains by {detail.split('. ')[0].rstrip('.')!r}"
