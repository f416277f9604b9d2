"""Two small networks for 8 x 8 images, as ``(init, logits)`` pairs of plain functions."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax


class Model(NamedTuple):
    init: Callable[[jax.Array], optax.Params]
    logits: Callable[[optax.Params, jax.Array], jax.Array]


def dense(key, inputs, outputs):
    """Weights of variance ``1 / inputs`` and no bias."""
    weights = jax.random.normal(key, (inputs, outputs)) / jnp.sqrt(inputs)
    return {"weights": weights, "bias": jnp.zeros(outputs)}


def affine(layer, inputs):
    return inputs @ layer["weights"] + layer["bias"]


def patches(images, starts):
    """The 3 x 3 windows with their corners at ``starts``, each as one row of features.

    A convolution is then a matrix product, which ``vmap`` over weights keeps fast; a grouped
    convolution would not be.
    """
    windows = [
        [images[:, i : i + 3, j : j + 3, :].reshape(len(images), -1) for j in starts]
        for i in starts
    ]
    return jnp.stack([jnp.stack(row, axis=1) for row in windows], axis=1)


def mlp() -> Model:
    """64 - 16 - 10 with tanh: 1,210 parameters."""

    def init(key):
        first, second = jax.random.split(key)
        return {"hidden": dense(first, 64, 16), "output": dense(second, 16, 10)}

    def logits(params, images):
        return affine(params["output"], jnp.tanh(affine(params["hidden"], images)))

    return Model(init, logits)


def convolution() -> Model:
    """Two 3 x 3 convolutions with relu, to 4 x 4 x 8 and to 2 x 2 x 12: 1,446 parameters."""

    def init(key):
        first, second, third = jax.random.split(key, 3)
        return {
            "near": dense(first, 9, 8),
            "far": dense(second, 72, 12),
            "output": dense(third, 48, 10),
        }

    def logits(params, images):
        square = jnp.pad(images.reshape(-1, 8, 8, 1), ((0, 0), (0, 1), (0, 1), (0, 0)))
        near = jax.nn.relu(affine(params["near"], patches(square, (0, 2, 4, 6))))
        far = jax.nn.relu(affine(params["far"], patches(near, (0, 1))))
        return affine(params["output"], far.reshape(len(images), -1))

    return Model(init, logits)


MODELS = {"mlp": mlp, "convolution": convolution}
