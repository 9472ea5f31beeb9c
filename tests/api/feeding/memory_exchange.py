"""An exchange of messages in memory, for tests in which threads stand for processes."""

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any


class Store:
    """The state of all exchanges of one feed."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.posts: dict[int, str] = {}
        self.answers: dict[int, str] = {}
        self.max_answers = 0
        self.shared: Any = None
        self.left: list[int] = []


class MemoryExchange:
    """An exchange between the threads of one process."""

    def __init__(self, store: Store, process: int) -> None:
        self.store = store
        self.process = process
        self.before_wait: Callable[[], Any] = lambda: None

    def open(self, processes: Collection[int]) -> None:
        assert self.process in processes

    def post(self, message: str) -> None:
        self._write(self.store.posts.__setitem__, self.process, message)

    def read_posts(self) -> Mapping[int, str]:
        with self.store.changed:
            return dict(self.store.posts)

    def answer(self, step: int, answer: str) -> bool:
        with self.store.changed:
            if step in self.store.answers:
                return False
            self.store.answers[step] = answer
            self.store.max_answers = max(self.store.max_answers, len(self.store.answers))
            self.store.changed.notify_all()
            return True

    def wait_for_answer(self, step: int, timeout_s: float) -> str | None:
        self.before_wait()
        with self.store.changed:
            self.store.changed.wait_for(lambda: step in self.store.answers, timeout_s)
            return self.store.answers.get(step)

    def delete_answers(self, *, before: int) -> None:
        with self.store.changed:
            for old in [one for one in self.store.answers if one < before]:
                del self.store.answers[old]

    def share(self, value: object) -> None:
        self.store.shared = value

    def read_shared(self) -> Any:
        return self.store.shared

    def leave(self) -> None:
        self._write(self.store.left.append, self.process)

    def _write(self, write: Callable[..., Any], *what: Any) -> None:
        with self.store.changed:
            write(*what)
            self.store.changed.notify_all()
