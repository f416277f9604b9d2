"""What may be wrong with a norm, in words."""

from typing import Any, NamedTuple

import numpy as np

from optax_varynorm.norms import VaryingNorm


class Sampled(NamedTuple):
    """Points ``x``, ``y`` one a row, with weights ``p`` in (0, 1) and factors ``c > 0``."""

    x: Any
    y: Any
    weight: Any
    factor: Any


class Measured(NamedTuple):
    """Norms of the points in each round, one a row, and once in the end.

    ``is_positive``: whether the norm knows all coordinates from the start.
    """

    of_x: Any
    of_y: Any
    of_sum: Any
    of_difference: Any
    of_middle: Any
    of_multiple: Any
    of_negative: Any
    before: Any
    after: Any
    after_zero: Any
    last_of_x: Any
    dual: Any
    is_positive: Any


def raise_the_first(norm: VaryingNorm, sampled: Sampled, m: Measured, tolerance: float) -> None:
    """Raise the first complaint, at the worst of its violations."""
    x, y, p, c = sampled
    sigma = norm.strong_convexity

    def complain(excess, scale, text):
        """If an excess is above rounding, relative to a scale; the text is made of its indices."""
        too_much = excess > tolerance * scale
        if np.any(too_much):
            relative = excess / np.where(scale > 0, scale, 1)
            worst = np.argmax(np.where(too_much, relative, -np.inf))
            raise ValueError(text(*np.unravel_index(worst, excess.shape)))

    complain(
        np.abs(m.of_multiple - c * m.of_x),
        c * m.of_x,
        lambda t, i: (
            f"Not homogeneous: ||c x||_{t} = {m.of_multiple[t, i]:.6g} but c ||x||_{t} = "
            f"{c[i] * m.of_x[t, i]:.6g} {_at(c=c[i], x=x[i])}. The square of a norm "
            "must grow with the square of a factor."
        ),
    )
    complain(
        np.abs(m.of_negative - m.of_x),
        m.of_x,
        lambda t, i: (
            f"Not symmetric: ||-x||_{t} = {m.of_negative[t, i]:.6g} but ||x||_{t} = "
            f"{m.of_x[t, i]:.6g} {_at(x=x[i])}."
        ),
    )
    if m.is_positive:
        nonzero = np.any(x != 0, axis=1)
        complain(
            np.where(nonzero & (m.of_x == 0), 1.0, 0.0),
            np.ones_like(m.of_x),
            lambda t, i: (
                f"Not positive: ||x||_{t} = 0 {_at(x=x[i])}. Where nothing was seen yet, "
                "start with a multiple of the identity."
            ),
        )
    complain(
        m.of_sum - (m.of_x + m.of_y),
        m.of_x + m.of_y,
        lambda t, i: (
            f"Not convex, so no norm: ||x + y||_{t} = {m.of_sum[t, i]:.6g} exceeds "
            f"||x||_{t} + ||y||_{t} = {m.of_x[t, i] + m.of_y[t, i]:.6g} {_at(x=x[i], y=y[i])}."
        ),
    )
    complain(
        m.before - m.after,
        m.before,
        lambda t, i: (
            f"Not increasing: ||x||_{t} = {m.before[t, i]:.6g} but ||x||_{t + 1} = "
            f"{m.after[t, i]:.6g} {_at(x=x[i])}. A gradient must not lower the norm of "
            "any point: add to the state, or take the maximum with what it was."
        ),
    )
    if sigma is not None:
        sigma = float(sigma)
        chord = p * m.of_x**2 + (1 - p) * m.of_y**2
        missing = m.of_middle**2 - (chord - sigma * p * (1 - p) * m.of_difference**2)
        complain(
            missing,
            chord,
            lambda t, i: (
                f"Not {sigma:.6g}-strongly convex: with z = p x + (1 - p) y, ||z||_{t}^2 = "
                f"{m.of_middle[t, i] ** 2:.6g} exceeds p ||x||^2 + (1 - p) ||y||^2 - "
                f"sigma p (1 - p) ||x - y||^2 = {m.of_middle[t, i] ** 2 - missing[t, i]:.6g} "
                f"{_at(p=p[i], x=x[i], y=y[i])}. Claim a smaller `strong_convexity`, "
                "or add a norm that is strongly convex."
            ),
        )
    complain(
        np.abs(m.after_zero - m.last_of_x),
        m.last_of_x,
        lambda _, i: (
            f"Not still: a zero gradient changed ||x|| from {m.last_of_x[0, i]:.6g} to "
            f"{m.after_zero[0, i]:.6g} {_at(x=x[i])}."
        ),
    )
    complain(
        np.abs(m.dual - m.last_of_x),
        m.last_of_x,
        lambda _, i: (
            f"Not dual: ||x|| = {m.last_of_x[0, i]:.6g} but ||to_dual(x)||_* = "
            f"{m.dual[0, i]:.6g} {_at(x=x[i])}. `to_primal` must be the inverse of "
            "`to_dual`; where a solver finds it, the norm is too far from smooth for it."
        ),
    )

    numbers = (m.of_x, m.of_y, m.of_sum, m.of_difference, m.of_middle)
    unknown = np.max([~np.isfinite(lengths) for lengths in numbers], axis=0)
    complain(
        unknown.astype(float),
        np.ones_like(m.of_x),
        lambda t, i: (
            f"Not a number: the norm {t} of x, y or a sum of them is not finite "
            f"{_at(x=x[i], y=y[i])}. `to_dual` must be finite everywhere; half a square must be "
            "differentiable where some coordinates are zero."
        ),
    )


def _at(**vectors) -> str:
    texts = (
        f"{name} = {np.array2string(np.asarray(value, float), precision=6, threshold=20)}"
        for name, value in vectors.items()
    )
    return "at " + ", ".join(texts)
