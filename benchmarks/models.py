"""Two small networks for 8 x 8 images, as ``(init, logits)`` pairs of plain functions."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax


class Model(NamedTuple):
    init: Callable[[np.random.Generator], optax.Params]
    logits: Callable[[optax.Params, jax.Array], jax.Array]


def dense(rng, inputs, outputs):
    """Weights of variance ``1 / inputs`` and a bias of zero."""
    weights = rng.normal(scale=inputs**-0.5, size=(inputs, outputs))
    return {"weights": weights.astype(np.float32), "bias": np.zeros(outputs, np.float32)}


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

    def init(rng):
        return {"hidden": dense(rng, 64, 16), "output": dense(rng, 16, 10)}

    def logits(params, images):
        return affine(params["output"], jnp.tanh(affine(params["hidden"], images)))

    return Model(init, logits)


def convolution() -> Model:
    """Two 3 x 3 convolutions with relu, to 4 x 4 x 8 and to 2 x 2 x 12: 1,446 parameters."""

    def init(rng):
        return {
            "near": dense(rng, 9, 8),
            "far": dense(rng, 72, 12),
            "output": dense(rng, 48, 10),
        }

    def logits(params, images):
        square = jnp.pad(images.reshape(-1, 8, 8, 1), ((0, 0), (0, 1), (0, 1), (0, 0)))
        near = jax.nn.relu(affine(params["near"], patches(square, (0, 2, 4, 6))))
        far = jax.nn.relu(affine(params["far"], patches(near, (0, 1))))
        return affine(params["output"], far.reshape(len(images), -1))

    return Model(init, logits)


MODELS = {"mlp": mlp, "convolution": convolution}
