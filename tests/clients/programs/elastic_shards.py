"""Read with `ElasticIterator` on two shards, and continue on one, on two and on four."""

import json
from typing import Any

import grain

ds: Any = grain.MapDataset.range(96).seed(3).shuffle().map(lambda x: {"v": x})


def shards(num_shards: int, global_batch_size: int) -> list[Any]:
    return [
        grain.experimental.ElasticIterator(
            ds, global_batch_size, grain.sharding.ShardOptions(shard, num_shards)
        )
        for shard in range(num_shards)
    ]


if __name__ == "__main__":
    before = shards(2, 4)
    found: dict[str, Any] = {
        "before": [[next(shard)["v"].tolist() for _ in range(3)] for shard in before]
    }
    state = before[0].get_state()
    found["states are equal"] = state == before[1].get_state()
    for num_shards in (1, 2, 4):
        after = shards(num_shards, 4)
        for shard in after:
            shard.set_state(state)
        found[f"on {num_shards}"] = [[batch["v"].tolist() for batch in shard] for shard in after]
    print(json.dumps(found))
