"""Log where a run computes when it starts, and what it did when it ends."""

import logging
from typing import final

from gristmill._base.format_numbers import count_of
from gristmill._engine.settings import Settings
from gristmill._metrics.counters import Counters
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.hints import ReadNode, WorkersNode, all_nodes
from gristmill._plan.nodes.sampled import SampleNode
from gristmill._plan.traverse import labels_of, shorten_steps
from gristmill._printable import printable
from gristmill.options import RayOptions

logger = logging.getLogger("gristmill")


@final
class RunLog:
    """Logs one line at the first element of a run, and one when the run ends or is closed.

    Nothing is logged for an iterator that is dropped before its end: the garbage collector may
    drop it while another thread holds the lock of a log handler.
    """

    def __init__(self, plan: Node, settings: Settings) -> None:
        self._plan, self._settings = plan, settings
        self._is_running = False

    def start(self) -> None:
        """Log the steps and where they run, unless it was done."""
        if not self._is_running:
            self._is_running = True
            if logger.isEnabledFor(logging.INFO):
                steps = steps_shown(self._plan)
                logger.info(
                    "Started %s, %s.", steps, describe_execution(self._plan, self._settings)
                )

    def end(self, counters: Counters) -> None:
        """Log what the run did, if it was started."""
        if self._is_running:
            self._is_running = False
            if logger.isEnabledFor(logging.INFO):
                stats = counters.stats()
                skipped = f", {stats.num_skipped:,} skipped" if stats.num_skipped else ""
                replaced = count_of(stats.num_restarts, "worker")
                more = skipped + (f", {replaced} replaced" if stats.num_restarts else "")
                logger.info("Ended %s: %s%s.", steps_shown(self._plan), stats.summary(), more)


def steps_shown(plan: Node) -> str:
    """Return the steps in one line, with the type of the sampler instead of its arguments."""
    samples = {
        node.label: type(node.sampler).__name__
        for node in all_nodes(plan)
        if isinstance(node, SampleNode)
    }
    return printable(shorten_steps([samples.get(label, label) for label in labels_of(plan)]))


def describe_execution(plan: Node, settings: Settings) -> str:
    """Return where the steps of a plan run, as far as the options decide it.

    >>> from gristmill import MapDataset
    >>> from gristmill.options import MultiprocessingOptions
    >>> stream = MapDataset.range(3).to_iter_dataset()
    >>> def shown(dataset):
    ...     iterator = iter(dataset)
    ...     return describe_execution(*iterator._run.pipeline[:2])
    >>> shown(stream)
    'in this process with up to 16 threads'
    >>> shown(stream.mp_prefetch(MultiprocessingOptions(num_workers=2)))
    'in 2 worker processes'
    """
    nodes = list(all_nodes(plan))
    workers = [settings.multiprocessing.num_workers]
    workers += [node.options.num_workers for node in nodes if isinstance(node, WorkersNode)]
    if settings.is_tuned:
        return "where it is measured to be fastest: in this process, in threads or in workers"
    if max(workers):
        options = [settings.worker, *(n.worker for n in nodes if isinstance(n, WorkersNode))]
        on_ray = any(isinstance(one, RayOptions) for one in options)
        kind = "Ray actor" if on_ray else "worker process"
        plural = ("s" if kind == "Ray actor" else "es") if max(workers) > 1 else ""
        return f"in {max(workers)} {kind}{plural}"
    threads = [node.options.num_threads for node in nodes if isinstance(node, ReadNode)]
    count = max(threads or [settings.read.num_threads])
    return f"in this process with up to {count} threads" if count else "in this process"
