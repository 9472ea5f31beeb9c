"""The context of users' own iterators: the options of the pipeline, as in Grain."""

from typing import Any

import pytest

from gristmill._api.dataset.iterator_context import IteratorContext, MultiprocessingContext
from gristmill._base.grain.context import update_context
from gristmill.experimental import DatasetOptions
from tests.compat.both_sides import SIDES, ours


def reporting_stream(api: Any, *parents: Any) -> Any:
    """Return a stream whose elements are the options and the worker that its iterator sees."""

    class ReportIterator(api.DatasetIterator):
        def __next__(self) -> Any:
            for parent in self._parents:
                next(parent)
            options, worker = self._ctx.dataset_options, self._ctx.mp_context
            return (
                options.filter_warn_threshold_ratio,
                options.min_shm_size,
                worker.process_index,
                worker.process_count,
            )

        def get_state(self) -> Any:
            return [parent.get_state() for parent in self._parents]

        def set_state(self, state: Any) -> None:
            for parent, each in zip(self._parents, state, strict=True):
                parent.set_state(each)

    class Report(api.IterDataset):
        def __iter__(self) -> Any:
            return ReportIterator([parent.__iter__() for parent in self._parents])

        def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
            for parent in self._parents:
                parent.set_slice(sl, sequential_slice)

    return Report(parents)


def with_options(api: Any, stream: Any, **options: Any) -> Any:
    made = api.experimental.DatasetOptions(**options)
    return api.experimental.WithOptionsIterDataset(stream, made)


def numbers(api: Any) -> Any:
    return api.MapDataset.range(2).to_iter_dataset()


def nested(api: Any) -> Any:
    below = with_options(api, numbers(api), min_shm_size=3, filter_warn_threshold_ratio=0.5)
    stream = reporting_stream(api, below).map(lambda x: x)
    return with_options(api, stream, filter_warn_threshold_ratio=None)


@pytest.mark.parametrize(
    "build",
    [
        lambda api: reporting_stream(api, numbers(api)),
        lambda api: reporting_stream(api, with_options(api, numbers(api), min_shm_size=3)),
        lambda api: with_options(api, reporting_stream(api, numbers(api)), min_shm_size=3),
        nested,
        lambda api: reporting_stream(
            api,
            with_options(api, numbers(api), min_shm_size=3),
            with_options(api, numbers(api), min_shm_size=4, filter_warn_threshold_ratio=0.5),
        ),
    ],
)
def test_iterators_read_the_options_of_the_pipeline_as_in_grain(build: Any):
    made, theirs = [list(build(api)) for api in SIDES]
    assert made == theirs
    assert len(made) == 2


def test_parents_share_the_merged_context():
    parents = [with_options(ours, numbers(ours), min_shm_size=3), numbers(ours)]
    iterator: Any = iter(reporting_stream(ours, *parents))
    context = iterator._ctx
    assert context.dataset_options.min_shm_size == 3
    assert all(parent._ctx is context for parent in iterator._parents)


def test_an_iterator_of_a_slice_knows_the_slice_and_the_options():
    stream = reporting_stream(ours, ours.MapDataset.range(4).to_iter_dataset())
    sliced = stream.mp_prefetch(ours.MultiprocessingOptions(num_workers=2))
    assert list(with_options(ours, sliced, min_shm_size=3)) == [(0.9, 3, 0, 2), (0.9, 3, 1, 2)] * 2


def test_contexts_of_two_processes_cannot_be_merged():
    one, other = (
        IteratorContext(mp_context=MultiprocessingContext(process_index=index, process_count=2))
        for index in range(2)
    )
    with pytest.raises(ValueError, match=r"different worker processes: .*Merge those of one"):
        one.merge(other)


def test_the_context_is_updated_only_if_it_is_one():
    context, other = IteratorContext(), object()
    update_context(context, {"min_shm_size": 5, "unknown": 1})
    update_context(other, {"min_shm_size": 5})
    assert context.dataset_options == DatasetOptions(min_shm_size=5)
