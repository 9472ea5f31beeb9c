"""Workers on a Ray cluster, on the node of the program and on another one."""

from dataclasses import replace

from benchmarks._model import Contender, Role, Row, Target, contender
from benchmarks.rows import jpeg, large_batches

NOTE = (
    "Both nodes are on this machine, so that they share its 2 cores, and the network is its "
    "loopback. Measured in the steady state."
)


def _contenders(program: str, *, on_other_node: bool) -> tuple[Contender, ...]:
    where = "another node" if on_other_node else "same node"
    return (
        contender(
            "Ray Data",
            where,
            Role.PEER,
            "ray",
            f"ray_data:{program}",
            worker_count=2,
            on_other_node=on_other_node,
        ),
        contender(
            "processes",
            "2 workers of gristmill",
            Role.PEER,
            "gristmill",
            f"gristmill_workers:{program}",
            worker_count=2,
        ),
        contender(
            "gristmill",
            where,
            Role.OURS,
            "gristmill",
            f"gristmill_ray:{program}",
            worker_count=2,
            on_other_node=on_other_node,
        ),
    )


JPEG = Row(
    name="ray_jpeg",
    title="JPEG decode, crop, flip, batch 32, 2 Ray actors on another node, steady state",
    note=NOTE,
    data="jpeg",
    measure=jpeg.measure,
    contenders=_contenders("jpeg", on_other_node=True),
    targets=(Target(times=2, of="Ray Data"), Target(times=0.8, of="processes")),
)

JPEG_SAME_NODE = replace(
    JPEG,
    name="ray_jpeg_same_node",
    title="The same with actors on the node of the program",
    contenders=_contenders("jpeg", on_other_node=False),
)

LARGE = Row(
    name="ray_large_batches",
    title="Batches of 38 MB from 2 Ray actors on another node, steady state",
    note=NOTE,
    measure=large_batches.measure,
    metrics=large_batches.ROW.metrics,
    score=large_batches.ROW.score,
    contenders=_contenders("large_batches", on_other_node=True),
    targets=(Target(times=2, of="Ray Data"),),
)

LARGE_SAME_NODE = replace(
    LARGE,
    name="ray_large_batches_same_node",
    title="The same with actors on the node of the program",
    contenders=_contenders("large_batches", on_other_node=False),
)

ROWS = (JPEG, JPEG_SAME_NODE, LARGE, LARGE_SAME_NODE)
