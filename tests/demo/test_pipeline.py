import numpy as np

from gristmill._demo.pipeline import FlattenAndCast, batches


def test_a_block_is_mapped_like_its_records():
    images = np.random.default_rng(0).integers(0, 256, (6, 28, 28), dtype=np.uint8)
    labels = np.arange(6, dtype=np.uint8)

    flat, same_labels = FlattenAndCast().map_batch((images, labels))
    rows = [
        FlattenAndCast().map((image, label)) for image, label in zip(images, labels, strict=True)
    ]

    assert flat.dtype == np.float32
    assert np.array_equal(flat, np.stack([row for row, _ in rows]))
    assert same_labels.tolist() == [label for _, label in rows]


def test_a_shuffled_epoch_has_every_image_once_with_its_label():
    labels = np.arange(50, dtype=np.uint8)
    images = np.broadcast_to(labels[:, None, None], (50, 28, 28))

    epoch = list(batches(images, labels, batch_size=16, shuffle=True, seed=3))
    seen = np.concatenate([y for _, y in epoch])

    assert [len(y) for _, y in epoch] == [16, 16, 16, 2]
    assert sorted(seen.tolist()) == labels.tolist()
    assert seen.tolist() != labels.tolist()
    assert all((x == y[:, None]).all() for x, y in epoch)
