"""The Euclidean ball and the ellipsoid."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import solve_triangular

from optax_varynorm import _arguments, _precision
from optax_varynorm.domains import in_kernels, lanczos, secular, short_lanczos
from optax_varynorm.domains.by_constraint import Found, domain_of, find, in_wide_numbers
from optax_varynorm.domains.constraint import (
    Constraint,
    kkt_error,
    length,
    relative_error,
    slack_of,
)
from optax_varynorm.domains.domain import Domain, fill_like, require_coordinates, require_finite
from optax_varynorm.domains.in_kernels import mean
from optax_varynorm.domains.metric import Stiffness, stiffness
from optax_varynorm.kernels import one_kernel

# Up to here Lanczos' method is one kernel, in which products with the matrix are written out.
LARGEST_SHORT = 48
# Errors of Lanczos' method that a factorization need not make smaller.
ACCURATE = {jnp.dtype(jnp.float32): 3e-4, jnp.dtype(jnp.float64): 1e-9}


def l2_ball(radius, center=0.0) -> Domain:
    r"""The points with :math:`\|w - c\|_2 \le r`.

    In a quadratic norm by ``secular.solve``, in others by ``newton.solve``.

    Args:
      radius: a positive number.
      center: a number, or a tree like the parameters.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> domain = vn.l2_ball(1.0)
    >>> bool(domain.contains(jnp.array([0.6, -0.6])))
    True
    """
    _arguments.require_positive("radius", radius, "the radius of the ball")
    require_finite("The center of `l2_ball`", center)

    def centered(point):
        middle, _ = ravel_pytree(fill_like("The center of `l2_ball`", center, point))
        return middle, jnp.asarray(radius, middle.dtype)

    def support(gradient):
        flat, _ = ravel_pytree(gradient)
        middle, r = centered(gradient)
        return flat @ middle + r * jnp.linalg.norm(flat)

    def contains(point):
        flat, _ = ravel_pytree(_precision.cast(point, _precision.working_dtype(point)))
        middle, r = centered(point)
        return length(flat - middle) <= r * (1 + _precision.rounding(r.dtype))

    return _round(lambda point: (*centered(point), None), support, contains)


def ellipsoid(matrix, radius, center=0.0) -> Domain:
    r"""The points with :math:`(w - c)^\top Q (w - c) \le r^2`.

    With :math:`Q = L L^\top` this is a ball of the points :math:`L^\top w`.

    Args:
      matrix: ``Q``, positive definite, rows and columns in tree order
        (``jax.flatten_util.ravel_pytree``).
      radius: a positive number.
      center: a number, or a tree like the parameters.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> domain = vn.ellipsoid(jnp.diag(jnp.array([1.0, 4.0])), 1.0)
    >>> bool(domain.contains(jnp.array([0.0, 0.6])))
    False
    """
    _arguments.require_positive("radius", radius, "the radius of the ellipsoid")
    require_finite("The center of `ellipsoid`", center)
    require_finite("The matrix of `ellipsoid`", matrix)
    if np.ndim(matrix) != 2 or np.shape(matrix)[0] != np.shape(matrix)[1]:
        raise ValueError(
            f"`ellipsoid` needs a square matrix, but it has the shape {np.shape(matrix)}."
        )
    if _arguments.is_known(matrix):
        known = np.asarray(matrix, float)
        if not np.allclose(known, known.T) or np.min(np.linalg.eigvalsh(known)) <= 0:
            raise ValueError(
                "The matrix of `ellipsoid` must be symmetric and positive definite. For a set "
                "without bounds in some directions use `polyhedron` or `half_space`."
            )
        # In float64 where NumPy can; float32 could lose a small eigenvalue.
        factor = np.linalg.cholesky(known)
    else:
        factor = jnp.linalg.cholesky(matrix)

    def scaled(point):
        middle, _ = ravel_pytree(fill_like("The center of `ellipsoid`", center, point))
        require_coordinates("`ellipsoid`", len(factor), middle.size)
        rows = jnp.asarray(factor, middle.dtype).T
        # Rows of length one on average: the solvers then see numbers of the size of the point's.
        unit = jnp.linalg.norm(rows) / np.sqrt(len(factor))
        return middle, jnp.asarray(radius, middle.dtype) / unit, rows / unit

    def support(gradient):
        flat, _ = ravel_pytree(gradient)
        middle, r, rows = scaled(gradient)
        return flat @ middle + r * jnp.linalg.norm(solve_triangular(rows, flat, trans="T"))

    def contains(point):
        flat, _ = ravel_pytree(_precision.cast(point, _precision.working_dtype(point)))
        middle, r, rows = scaled(point)
        return length(rows @ (flat - middle)) <= r * (1 + _precision.rounding(r.dtype))

    return _round(scaled, support, contains)


def _round(shape, support, contains) -> Domain:
    r"""The points with :math:`\|K(w - c)\|_2 \le r`; ``shape(point)`` is ``(c, r, K)``."""

    def constraint(point):
        middle, r, rows = shape(point)
        center = middle if rows is None else rows @ middle

        def shrink(z):
            far = length(z - center)
            return jnp.where(far > r, r / jnp.where(far > 0, far, 1), 1)

        def slope(z):
            shrunk = shrink(z)
            outward = (z - center) / jnp.maximum(length(z - center), r)

            def times(columns):
                turned = shrunk * (columns - jnp.outer(outward, outward @ columns))
                return jnp.where(shrunk < 1, turned, columns)

            return times

        def nearest(z):
            return jnp.where(shrink(z) < 1, center + shrink(z) * (z - center), z)

        def inside(z, slack):
            return length(z - center) <= r + length(slack)

        if _is_short(rows, center):

            @one_kernel
            def is_inside(z):
                far, slack = in_kernels.length(z - center), in_kernels.length(slack_of(jnp.abs(z)))
                return far <= r + slack

            def inside(z, slack):
                # Made in the kernel as well.
                del slack
                return is_inside(z)

        def weighted(z, weights):
            found = secular.solve(secular.by_diagonal(1 / weights), z - center, r)
            return jnp.where(shrink(z) < 1, center + found.point, z)

        return Constraint(nearest, slope, inside, rows, weighted if rows is None else None)

    def as_found(constraint, point, metric, b: Stiffness, root: secular.Root) -> Found:
        ours, (flat, _) = constraint(point), ravel_pytree(point)
        middle, _, rows = shape(point)
        mu = root.multiplier * root.point
        moved = b.times(mu) if rows is None else metric.to_primal(ours.pull_back(mu))
        scaled = mean(b.diagonal) * mu
        error = kkt_error(ours, ours.apply(flat), ours.apply(moved), scaled)
        if rows is None:
            return Found(mu, middle + root.point, error, moved)
        # What K w is wrong by grows until it is w, by about the ratio of the triangle's pivots.
        pivots = jnp.abs(jnp.diagonal(rows))
        growth = jnp.max(pivots) / jnp.min(pivots)
        return Found(mu, middle + solve_triangular(rows, root.point), growth * error, moved)

    def find_by_factors(constraint, point, metric, start) -> Found:
        ours, (flat, _) = constraint(point), ravel_pytree(point)
        middle, r, _ = shape(point)
        b = stiffness(metric, ours, flat.size)
        system = secular.by_matrix(b.block(None))
        root = secular.solve(system, ours.apply(flat - middle), r, length(start) / r)
        return as_found(constraint, point, metric, b, root)

    def find_round(constraint, point, metric, start) -> Found:
        if metric.inverse is None:
            return find(constraint, point, metric, start)
        ours, (flat, _) = constraint(point), ravel_pytree(point)
        middle, r, rows = shape(point)
        arrow = ours.apply(flat - middle)
        b = stiffness(metric, ours, flat.size)

        def first_multiplier(start):
            return length(start) / r

        if metric.is_diagonal and rows is None:
            system = secular.by_diagonal(b.diagonal)
            root = secular.solve(system, arrow, r, first_multiplier(start))
            return as_found(constraint, point, metric, b, root)
        is_short = _is_short(rows, flat)
        if is_short:
            b = b.put_together()

        def is_close(found: Found):
            return found.error <= ACCURATE[jnp.dtype(flat.dtype)]

        def carefully(start) -> Found:
            unit = mean(b.diagonal)
            root = lanczos.solve(b.times, unit, arrow, r, first_multiplier(start))
            found = as_found(constraint, point, metric, b, root)

            def factorize(found) -> Found:
                wide = in_wide_numbers(find_by_factors)
                return wide(constraint, point, metric, found.multipliers)

            return jax.lax.cond(is_close(found), lambda found: found, factorize, found)

        if not is_short:
            return carefully(start)

        matrix = b.block(None)

        @one_kernel
        def briefly(start) -> Found:
            unit, last = mean(b.diagonal), in_kernels.length(start) / r
            root = short_lanczos.solve(matrix, unit, arrow, r, last)
            mu = root.multiplier * root.point
            moved = in_kernels.combine_once(matrix, mu)
            # The KKT error, in the words of the kernel.
            z = arrow - moved + unit * mu
            nearest = z * jnp.minimum(r / in_kernels.length(z), 1)
            missed = in_kernels.length(arrow - moved - nearest)
            error = relative_error(missed, in_kernels.length(moved), in_kernels.length(flat))
            return Found(mu, middle + root.point, error, moved)

        found = briefly(start)
        return jax.lax.cond(is_close(found), lambda _: found, carefully, start)

    return domain_of(constraint, support, contains, find_round)


def _is_short(rows, vector) -> bool:
    """Whether what is done with vectors like this one should be one kernel."""
    return rows is None and vector.size <= LARGEST_SHORT
