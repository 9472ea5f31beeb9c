"""Tuning policy: every constant behind a decision that the engine makes by measuring.

The controllers are functions of what was measured (`BlockStats`) and of this policy. Neither has a
clock or a constant of its own, so a test, or a benchmark of another setting, passes another policy.
`docs/tuning.md` describes the decisions and lists the fields.
"""

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, kw_only=True)
class TuningPolicy:
    """The constants of all feedback loops. They change how fast a stream is, never the stream.

    >>> TuningPolicy(busy_share=0.0).busy_share
    0.0
    """

    # Block size: how many positions are computed together.

    inline_block_s: float = 0.0015
    """Seconds that a block computed inline should take: long enough that handing it over costs
    little in comparison (tens of microseconds), short enough that a consumer that shares the
    interpreter lock with a background thread does not wait for it."""

    thread_block_s: float = 0.005
    """Seconds that a block computed in a thread should take: more than inline, because each block
    passes through two queues."""

    process_block_s: float = 0.016
    """Seconds that a block computed in a worker process should take: more than in a thread, because
    each block wakes threads of the parent on cores that the workers need."""

    ray_block_s: float = 0.05
    """Seconds that a block computed by a Ray actor should take: a round trip takes about 1.2 ms,
    and an object of the store a few more."""

    first_block_positions: int = 1
    """Positions of the first block: nothing is known yet, and the consumer waits for it."""

    max_block_positions: int = 4096
    """Maximum number of positions of a block: larger blocks save nothing and take memory."""

    max_block_records: int = 65_536
    """Maximum number of records of a block, where one position is a batch of many."""

    block_growth: int = 2
    """Factor by which a block grows that takes less than half of its time."""

    fast_block_growth: int = 8
    """Factor by which a block grows that takes less than 1/16 of its time, as the first ones do."""

    block_shrink_above: float = 2.0
    """A block that takes more than this many times its time is halved next time."""

    bulk_read_block_factor: int = 4
    """Blocks of a source that reads many records in one call may take this many times as long: such
    reads are faster per record, the more records they are for."""

    num_sources_per_block_factor: int = 4
    """Blocks gathered from several sources may take longer by one block time for each of this many
    sources, because they consist of many small reads."""

    max_sources_block_factor: int = 8
    """Limit on the two factors above."""

    remote_block_factor: int = 20
    """Blocks of a source that reads many records in one call and mostly waits, for a disk or a
    network, may take this many times as long: waiting for many records takes as long as for one."""

    remote_forget_blocks: int = 32
    """After this many blocks in a row that did not wait, blocks take their usual time again: the
    file is in the page cache by then."""

    gc_blocks: int = 2
    """After this many blocks in a row that each ran the garbage collector, blocks are halved. It
    runs after 700 new containers; with PyTorch or JAX imported a full collection takes 0.1 s. One
    block is not enough: it may have been its turn by chance."""

    gc_retry_blocks: int = 256
    """After this many blocks without a garbage collection, blocks may be twice as long again: the
    garbage may have been that of another thread."""

    # Waiting: whether a block waited for a disk or a network.

    waiting_share: float = 0.5
    """A block waited if it spent more than this share of its time without computing."""

    min_waiting_s: float = 0.0002
    """A block that took less time did not wait: switching threads takes almost as long."""

    # Executor: inline, in threads, or in worker processes.

    window_s: float = 0.1
    """Minimum time over which elements per second are measured."""

    window_blocks: int = 3
    """Minimum number of blocks with elements over which elements per second are measured."""

    warm_up_s: float = 0.01
    """Time that a strategy gets before it is measured, at least its first block: blocks reach their
    size, caches fill."""

    max_settle_s: float = 0.3
    """Maximum time that a trial waits for threads of the strategy before it to finish their blocks:
    until then they compete for the interpreter lock."""

    starved_share: float = 0.5
    """A larger strategy is tried only if the consumer waits for elements for at least this share of
    the time. Otherwise it would gain nothing."""

    first_trial_s: float = 0.3
    """Time on the first strategy before another one is tried: three windows, so that the first
    reads and imports count for little. Data that take long per element lose half of this time if
    two cores could share them."""

    retry_trial_s: float = 0.75
    """Minimum time after a failed trial, and maximum after a change of the data. A failed trial
    takes 50 to 100 ms at half the speed, less than a tenth of this."""

    quick_trial_s: float = 0.1
    """The same after a successful trial, which cost nothing, and on threads that were chosen
    because the first record waited: it opens files and fills caches, so it waits more often than
    those after it."""

    backoff_factor: float = 4.0
    """Factor by which the time until the next trial grows with each failed trial."""

    max_trial_interval_s: float = 60.0
    """Maximum time until the next trial, as long as the budget for trials allows it."""

    max_trial_share: float = 0.03
    """Share of the time that trials may cost. Each second on the present strategy adds this much to
    a budget, from which the time that failed trials have lost is subtracted. No trial begins whose
    expected cost exceeds the budget."""

    trial_allowance_s: float = 0.2
    """The budget for trials to begin with: the cost of a few trials of usual length."""

    min_speedup: float = 1.1
    """Speed, relative to the present strategy, from which a larger one is worth its threads or
    processes."""

    min_relative_speed: float = 0.97
    """Speed, relative to the present strategy, from which a smaller one replaces it."""

    early_stop_ratio: float = 0.8
    """A trial below this relative speed ends early."""

    abort_ratio: float = 0.25
    """A trial that could not reach this relative speed with one more block ends at once, even
    before it has seen enough blocks to be measured."""

    early_stop_window_share: float = 0.25
    """Share of a window after which a trial may end early."""

    rate_change_factor: float = 1.5
    """If elements per second, or seconds of computing per element, change by this factor, the data
    are no longer those of the last trial. The next trial does not wait longer than
    `retry_trial_s`."""

    rate_change_windows: int = 3
    """Number of windows in a row that must show a change of the data: a single one may be a pause
    of the operating system."""

    history_windows: int = 24
    """Number of windows that are remembered, to find bursts and to measure the mean speed if there
    are some: at least 2.4 s, so several bursts that are half a second apart."""

    min_history_s: float = 1.0
    """Time for which data with bursts are measured on a strategy before another one is tried."""

    same_data_factor: float = 1.1
    """If there are bursts, a trial ends when its elements have taken, on average, what those before
    it took, up to this factor: then both contain about as many bursts."""

    max_trial_loss_s: float = 0.5
    """Time that a trial may lose if there are bursts, even if its elements were more expensive than
    those before it."""

    ready_timeout_s: float = 0.0
    """Time that the stream waits for worker processes that start for a trial. Without it the stream
    continues on the present strategy until they have started."""

    keep_tried_s: float = 5.0
    """Time that worker processes live on after a failed trial. The second trial comes before it
    ends, and need not start them again."""

    max_tried_workers: int | None = None
    """Largest number of worker processes to try. By default the number of cores."""

    min_worker_s: float = 0.0001
    """Seconds per element from which `pick_performance_config` uses workers: about ten times the
    time that it takes to send one."""

    threads_tasks: int = 2
    """Blocks that each thread may have: one to compute and one to continue with."""

    # Interpreter lock: whether threads can help at all.

    probe_sleeps: int = 5
    """Number of short sleeps that a probe thread takes beside the code in question. The median of
    their lengths counts."""

    probe_sleep_s: float = 0.0002
    """Length of such a sleep."""

    held_share: float = 0.5
    """The code holds the interpreter lock if a sleep takes longer than this share of the switch
    interval (5 ms), after which a thread that waits for the lock gets it."""

    # Prefetching: whether a background thread computes the next elements.

    busy_share: float = 0.5
    """A background thread pays off if the consumer is busy for this share of the time that a block
    takes. Otherwise the two take turns at the interpreter lock, which is slower by a quarter."""

    busy_decay: float = 0.95
    """Weight of the past, per block: one pause of the operating system does not make a busy
    consumer."""

    stop_after_blocks: int = 64
    """A background thread ends after this many blocks in a row in which the consumer was not
    busy."""

    max_stop_block_s: float = 0.02
    """A background thread that does not pay off ends only if the consumer waits for less than this
    for a block. In longer blocks taking turns costs little, but the block that the thread computes
    would be lost."""

    prefetch_blocks: int = 3
    """Blocks that a background thread prefetches: the one it computes and two that are ready. One
    would do; the second evens out the varying times of blocks."""

    worker_prefetch_blocks: int = 2
    """The same where worker processes compute the blocks: they already have some that are ready,
    and each may be large."""

    # Look-ahead: how many blocks worker processes compute before they are needed.

    blocks_per_worker: int = 2
    """Blocks of each worker: one to compute and one to continue with."""

    max_blocks_per_worker: int = 64
    """Maximum number of blocks of each worker, however late the first block is."""

    late_factor: float = 3.0
    """A block is late when it has taken this many times as long as a typical block. One that takes
    slightly longer is no reason to compute more: that needs memory, and fresh pages cost more than
    the wait."""

    ray_late_s: float = 1.0
    """Minimum time after which another Ray actor computes a late block, too: Ray reports the loss
    of a machine after 2 seconds, and that of one that hangs after 15."""

    lookahead_bytes: int = 128 << 20
    """Memory budget for blocks behind a late one, unless the user sets `memory_budget_bytes`."""

    large_block_bytes: int = 16 << 20
    """From this size of a block on, memory counts more than speed: a block that a background thread
    has prefetched is one of the `blocks_per_worker`, and slots are soon returned to the system."""

    cache_friendly_bytes: int = 4 << 20
    """Maximum size of a block of many small batches: memory that does not fit a cache is slower to
    fill."""

    shrink_after_blocks: int = 64
    """After this many blocks without an idle worker the look-ahead shrinks: a smaller set of shared
    memory stays warm."""

    typical_block_weight: float = 0.1
    """Weight of the last block in the average time that a block takes."""

    block_bytes_decay: float = 0.9
    """Factor by which the estimated bytes per position fall, per block, if blocks get smaller. They
    rise at once."""

    # Ray: how many actors, if their number follows the need.

    elastic_window_s: float = 1.0
    """Time over which the waiting of the consumer is measured."""

    elastic_grow_share: float = 0.5
    """Actors are added if the consumer waits for this share of a window."""

    elastic_release_share: float = 0.1
    """The consumer does not need all actors if it waits for less than this share."""

    elastic_release_s: float = 10.0
    """An eighth of the actors, at least one, is released after this time without need: starting
    another one takes seconds."""

    shared_block_records: int = 256
    """Records of a block of a shared pool. All readers have to request the same blocks, so their
    size does not adapt."""

    # Workers that hang.

    slow_task_s: float = 60.0
    """A worker that computes one block for longer than this is logged, with the step and the
    record: longer than a remote file takes with all retries, shorter than users wait before they
    look for the reason. After twice the time it is logged again."""

    # Shared memory: what is sent through it, and which slots stay mapped.

    message_bytes: int = 8192
    """Larger pickles of a block are in shared memory, not in the message."""

    in_band_bytes: int = 65_536
    """Smaller arrays of an element stay in the pickle, and so get memory of their own. Otherwise
    the labels of a batch, if the user keeps them, would keep the shared memory of its images alive.
    The copy takes microseconds."""

    min_slot_bytes: int = 65_536
    """Minimum size of a slot."""

    slot_idle_blocks: int = 256
    """A slot that was not used for this many blocks is returned to the system."""

    large_slot_idle_blocks: int = 4
    """The same for a slot of at least `large_block_bytes`: a worker that needs it once in a while
    can create another one."""

    trim_after_s: float = 1.0
    """Time after which an idle pool returns its shared memory: the next epoch usually begins
    before."""

    slot_slack: float = 1.125
    """Size of a new slot relative to the last block, once blocks were seen to vary in size, such as
    batches of strings or padded rows."""

    slot_bytes_decay: float = 0.9
    """Factor by which the size of new slots falls, per block, if blocks get smaller. It rises at
    once."""


DEFAULT_POLICY = TuningPolicy()
"""The policy of all streams of users."""
