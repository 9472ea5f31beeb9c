"""How many actors follow from how long the consumer waits, in a made-up time."""

from gristmill._engine.executors.ray.cluster.elastic import ElasticSize
from gristmill._engine.tuning.policy import TuningPolicy

POLICY = TuningPolicy(elastic_window_s=1.0, elastic_release_s=10.0)


def run(size: ElasticSize, shares: list[float], *, num_free: int = 100) -> list[int]:
    """Return the sizes after windows of a second in which the consumer waited for some shares."""
    sizes: list[int] = []
    for second, share in enumerate(shares, start=1):
        size.add_wait(share)
        sizes.append(size.adapt(float(second), num_ready=size.size, num_free=num_free))
    return sizes


def test_actors_double_while_the_consumer_waits():
    assert run(ElasticSize(1, None, 0.0, POLICY), [1.0] * 4) == [2, 4, 8, 16]


def test_there_are_no_more_than_the_cluster_has_room_for():
    size = ElasticSize(1, None, 0.0, POLICY)

    assert run(size, [1.0, 1.0], num_free=2) == [2, 4]
    assert size.adapt(3.0, num_ready=4, num_free=0) == 4


def test_there_are_no_more_than_the_user_allows():
    assert run(ElasticSize(1, 3, 0.0, POLICY), [1.0] * 4) == [2, 3, 3, 3]


def test_none_is_added_while_others_start():
    size = ElasticSize(4, None, 0.0, POLICY)
    size.add_wait(1.0)

    assert size.adapt(1.0, num_ready=2, num_free=100) == 4


def test_a_content_consumer_releases_one_after_the_other_down_to_the_minimum():
    sizes = run(ElasticSize(1, None, 0.0, POLICY), [1.0, 1.0] + [0.0] * 40)

    assert sizes[:2] == [2, 4]
    assert sizes[12:14] == [3, 3]
    assert sizes[-1] == 1


def test_of_many_actors_a_share_is_released_at_a_time():
    sizes = run(ElasticSize(1, None, 0.0, POLICY), [1.0] * 8 + [0.0] * 41, num_free=1000)

    assert sizes[7] == 256
    assert sorted(set(sizes[8:]), reverse=True) == [256, 224, 196, 172, 151]


def test_a_consumer_that_waits_sometimes_keeps_what_there_is():
    assert run(ElasticSize(1, None, 0.0, POLICY), [1.0] + [0.3] * 40)[-1] == 2


def test_a_window_that_is_not_over_changes_nothing():
    size = ElasticSize(1, None, 0.0, POLICY)
    size.add_wait(0.5)

    assert size.adapt(0.5, num_ready=1, num_free=100) == 1
