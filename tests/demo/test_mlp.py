import numpy as np
import pytest

from gristmill._demo.mlp import count_correct, init_params, log_probabilities, loss, update


def test_the_same_seed_yields_the_same_weights():
    first, again, other = (init_params(seed, (4, 3, 10)) for seed in (1, 1, 2))
    for (weights, biases), (same_weights, same_biases) in zip(first, again, strict=True):
        assert np.array_equal(weights, same_weights)
        assert np.array_equal(biases, same_biases)
    assert not np.array_equal(first[0][0], other[0][0])


def test_probabilities_add_up_to_one():
    images = np.random.default_rng(0).uniform(0, 255, (5, 784)).astype(np.float32)
    logs = log_probabilities(init_params(0), images)
    assert np.allclose(np.exp(logs).sum(axis=1), 1, atol=1e-5)


def test_the_loss_is_the_mean_over_images_and_classes():
    images = np.ones((3, 784), np.float32)
    labels = np.array([1, 5, 9], np.uint8)
    logs = np.asarray(log_probabilities(init_params(0), images))
    expected = -(logs[0, 1] + logs[1, 5] + logs[2, 9]) / 30
    assert float(loss(init_params(0), images, labels)) == pytest.approx(float(expected), rel=1e-5)


def test_training_memorizes_ten_images():
    labels = np.arange(10, dtype=np.uint8)
    images = np.zeros((10, 784), np.float32)
    images[labels, 50 * labels] = 255
    params = init_params(0)
    for _ in range(200):
        params = update(params, images, labels, 0.05)
    assert int(count_correct(params, images, labels)) == 10
