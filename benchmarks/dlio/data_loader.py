"""A data loader plugin for DLIO: the readers of DLIO, under gristmill's `DataLoader`."""

import pickle
from collections.abc import Iterator
from typing import Any

from dlio_benchmark.common.enumerations import DataLoaderType, Shuffle
from dlio_benchmark.data_loader.base_data_loader import BaseDataLoader
from dlio_benchmark.reader.reader_factory import ReaderFactory
from dlio_benchmark.utils.config import ConfigArguments

import gristmill


class DlioSource:
    """The samples of a dataset, read by DLIO's reader for its format, which each process opens."""

    def __init__(self, format_type: Any, dataset_type: Any, num_samples: int) -> None:
        self._format_type = format_type
        self._dataset_type = dataset_type
        self._num_samples = num_samples
        self._settings = pickle.dumps(ConfigArguments.get_instance())
        self._reader: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_reader": None}

    def __len__(self) -> int:
        return self._num_samples

    def __getitem__(self, index: int) -> Any:
        if self._reader is None:
            pickle.loads(self._settings)  # sets the settings of this process
            self._reader = ReaderFactory.get_reader(
                type=self._format_type,
                dataset_type=self._dataset_type,
                thread_index=-1,
                epoch_number=1,
            )
        return self._reader.read_index(index, 1)

    def __repr__(self) -> str:
        return f"DlioSource(<{self._num_samples} samples>)"


class GristmillDataLoader(BaseDataLoader):
    """Reads with as many workers as DLIO has `read_threads`."""

    def __init__(self, format_type: Any, dataset_type: Any, epoch_number: int) -> None:
        super().__init__(format_type, dataset_type, epoch_number, DataLoaderType.PYTORCH)

    def read(self) -> None:
        """Create the loader, once for all epochs."""
        source = DlioSource(self.format_type, self.dataset_type, self.num_samples)
        self._loader = gristmill.DataLoader(
            data_source=source,
            sampler=gristmill.IndexSampler(
                len(source),
                shard_options=gristmill.ShardOptions(self._args.my_rank, self._args.comm_size),
                shuffle=self._args.sample_shuffle is not Shuffle.OFF,
                num_epochs=1,
                seed=self._args.seed,
            ),
            operations=[gristmill.Batch(self.batch_size, drop_remainder=True)],
            worker_count=self._args.read_threads,
            read_options=gristmill.ReadOptions(num_threads=0),  # a reader of DLIO has state
        )

    def next(self) -> Iterator[Any]:
        """Yield the batches of an epoch."""
        super().next()
        yield from self._loader
        self.epoch_number += 1

    def finalize(self) -> None:
        """End the workers."""
        self._loader.close()
