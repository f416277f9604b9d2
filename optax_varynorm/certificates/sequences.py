"""Sequences of gradients on which the paper's bounds differ."""

import math

import jax.numpy as jnp
import numpy as np


def sec_adagrad(dimension: int, rounds: int, start_directions=None, drift=None) -> jnp.ndarray:
    r"""The example of Section ``sec:adagrad``, one gradient a row.

    For ``d`` rounds :math:`g_t = v_t`, for ``d`` more :math:`g_{d+t} = -v_t`, and then, for
    :math:`t = i + j\sqrt d + 2d` with :math:`1 \le i \le \sqrt d`,

    .. math:: g_t = \tfrac{1}{\sqrt d} v_d + (-1)^j \sqrt{1 - \tfrac1d}\, v_i.

    The gradients span ``d`` directions, but nearly lie in :math:`\sqrt d`, and their sum is a
    positive multiple of :math:`v_d`. There the bound of ``thm:adagrad`` is the least of the three.

    Args:
      dimension: ``d``, a perfect square; the ``v_i`` are the coordinate axes.
      rounds: ``T = 2 d + 2 k sqrt(d)`` for some integer ``k >= 0``.
      start_directions: how many axes the first ``2 d`` rounds cycle through, ``d`` by default.
        With ``sqrt(d)`` the gradients have low rank, and ``thm:fullmatrix`` is the best bound.
      drift: the component along ``v_d`` in the later rounds, ``1 / sqrt(d)`` by default. With
        ``1 / sqrt(2)`` the bound ``eqn:constantnorm`` is the best.
    """
    root = math.isqrt(dimension)
    late = rounds - 2 * dimension
    if dimension < 1 or root * root != dimension:
        raise ValueError(f"`dimension` must be a perfect square, such as 64, not {dimension}.")
    if late < 0 or late % (2 * root):
        raise ValueError(
            f"`rounds` must be 2 d + 2 k sqrt(d) = {2 * dimension} + {2 * root} k, not {rounds}."
        )
    cycle = dimension if start_directions is None else start_directions
    if not 1 <= cycle <= dimension:
        raise ValueError(f"`start_directions` must lie in 1..{dimension}, not be {cycle}.")
    drift = 1 / math.sqrt(dimension) if drift is None else drift
    if not 0 <= drift <= 1:
        raise ValueError(f"`drift` must lie in [0, 1], not be {drift}.")

    axes = np.eye(dimension)
    start = axes[np.arange(dimension) % cycle]
    turn, step = np.divmod(np.arange(late), root)
    signs = np.where(turn % 2 == 0, 1.0, -1.0)[:, None]
    end = drift * axes[-1] + signs * math.sqrt(1 - drift**2) * axes[step]
    return jnp.asarray(np.concatenate([start, -start, end]))
