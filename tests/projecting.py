"""What the projection tests share: norms with a given matrix, problems, and their exact answers."""

import contextlib
import warnings

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

import optax_varynorm as vn


def _times(matrix, tree):
    flat, unravel = ravel_pytree(tree)
    return unravel(matrix @ flat)


def _inverse_matrix(inverse):
    def block(indices):
        return inverse if indices is None else inverse[indices][:, indices]

    return vn.InverseMatrix(jnp.diagonal(inverse), block)


matrix_norm = vn.simple_norm(
    init=lambda params: jnp.eye(params.size, dtype=params.dtype),
    observe_gradient=lambda state, gradient: state,
    to_dual=lambda inverse, point: _times(jnp.linalg.inv(inverse), point),
    to_primal=_times,
    inverse=_inverse_matrix,
)


def matrix(kind: str, dimension: int, rng: np.random.Generator, condition=1e6) -> np.ndarray:
    """A positive definite matrix, of a condition number about as given at most."""
    d = dimension
    match kind:
        case "random":
            x = rng.normal(size=(d, d))
            a = np.eye(d) + x @ x.T
        case "ill_conditioned":
            q = np.linalg.qr(rng.normal(size=(d, d)))[0]
            a = (q * np.geomspace(1, condition, d)) @ q.T
        case "badly_scaled":
            x = rng.normal(size=(d, 2 * d))
            scales = np.geomspace(1, np.sqrt(condition / 30), d)
            a = scales[:, None] * (x @ x.T / d) * scales
        case "low_rank":
            x = rng.normal(size=(d, max(1, d // 8)))
            a = 2 * np.eye(d) + min(100, condition / d) * x @ x.T
        case _:
            raise ValueError(kind)
    return (a + a.T) / 2


MATRICES = ("random", "ill_conditioned", "badly_scaled", "low_rank")


def optax_l1_ball(tree):
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return optax.projections.projection_l1_ball(tree, 1.5)


def problem(name: str, dimension: int, rng: np.random.Generator):
    """A domain, and the constraints of the same set on a CVXPY variable."""
    d = dimension
    center = 0.2 * rng.normal(size=d)
    match name:
        case "box":
            lower = -rng.uniform(0.1, 1, size=d)
            upper = np.where(rng.random(d) < 0.2, np.inf, rng.uniform(0.1, 1, size=d))
            finite = np.isfinite(upper)
            return vn.box(lower, upper), lambda w: [w >= lower, w[finite] <= upper[finite]]
        case "non_negative":
            return vn.non_negative(), lambda w: [w >= 0]
        case "linf_ball":
            return vn.linf_ball(0.5, center), lambda w: [cp.abs(w - center) <= 0.5]
        case "simplex":
            return vn.simplex(2.0), lambda w: [w >= 0, cp.sum(w) == 2]
        case "l1_ball":
            return vn.l1_ball(1.5, center), lambda w: [cp.norm1(w - center) <= 1.5]
        case "l2_ball":
            return vn.l2_ball(0.7, center), lambda w: [cp.sum_squares((w - center) / 0.7) <= 1]
        case "ellipsoid":
            q = matrix("random", d, rng) / d
            root = np.linalg.cholesky(q).T
            return (
                vn.ellipsoid(q, 0.8, center),
                lambda w: [cp.sum_squares(root / 0.8 @ (w - center)) <= 1],
            )
        case "half_space":
            a = rng.normal(size=d)
            return vn.half_space(a, -0.5), lambda w: [a @ w <= -0.5]
        case "hyperplane":
            a = rng.normal(size=d)
            return vn.hyperplane(a, -0.5), lambda w: [a @ w == -0.5]
        case "affine":
            m = rng.normal(size=(max(1, d // 3), d))
            return vn.affine(m, np.ones(len(m))), lambda w: [m @ w == 1]
        case "polyhedron":
            m = rng.normal(size=(min(2 * d, 60), d))
            return vn.polyhedron(m, np.ones(len(m))), lambda w: [m @ w <= 1]
        case "intersection":
            a = rng.normal(size=d)
            return (
                vn.intersection(vn.simplex(), vn.half_space(a, a.mean()), vn.l2_ball(0.9)),
                lambda w: [w >= 0, cp.sum(w) == 1, a @ w <= a.mean(), cp.norm2(w) <= 0.9],
            )
        case "from_euclidean":
            return vn.from_euclidean(optax_l1_ball), lambda w: [cp.norm1(w) <= 1.5]
        case "product":
            half = d // 2
            return vn.product([vn.simplex(), vn.l2_ball(0.5)]), lambda w: [
                w[:half] >= 0,
                cp.sum(w[:half]) == 1,
                cp.sum_squares(w[half:] / 0.5) <= 1,
            ]
        case _:
            raise ValueError(name)


PROBLEMS = (
    "box",
    "non_negative",
    "linf_ball",
    "simplex",
    "l1_ball",
    "l2_ball",
    "ellipsoid",
    "half_space",
    "hyperplane",
    "affine",
    "polyhedron",
    "intersection",
    "from_euclidean",
    "product",
)
# Clarabel finds the face of a polyhedron and then its last digit; on a round set it stops near the
# square root of its tolerance.
ROUND = ("l2_ball", "ellipsoid", "intersection", "product")


def parted(name, vector):
    """A point as the tree that the domain of the problem takes."""
    half = len(vector) // 2
    return [vector[:half], vector[half:]] if name == "product" else vector


def exact_projection(constraints, inverse, point, forms=(True,)) -> np.ndarray:
    """What CVXPY and Clarabel say, in the norm whose inverse matrix is given.

    In ``x`` with ``w = v - S x`` and ``S S^T`` the inverse, the better conditioned form; with
    ``forms=(True, False)`` also in ``w``, and the better answer counts. Each is solved twice, the
    second time in units of the first answer, since Clarabel's tolerances are partly absolute.
    """
    factor = np.linalg.cholesky(inverse)
    upper = np.linalg.cholesky(np.linalg.inv(inverse)).T
    answers = []
    for whitened in forms:
        unit = np.linalg.norm(np.linalg.solve(factor, point))
        for _ in range(2):
            x = cp.Variable(len(point))
            w = point - unit * factor @ x if whitened else x
            root = x if whitened else upper / unit @ (w - point)
            program = cp.Problem(cp.Minimize(cp.sum_squares(root)), constraints(w))
            accuracy = solve(program)
            if not np.isfinite(accuracy):
                break
            length = unit * np.linalg.norm(root.value)
            answers.append((accuracy, length, w.value))
            unit = length or 1.0
    # Polyhedra are solved to their last digit. A round set is not: there, where both claim the same
    # accuracy, the shorter way wins.
    return min(answers, key=lambda answer: answer[:2])[2]


def solve(program, tolerances=(1e-13, 1e-12, 1e-11, 1e-10, 1e-9)) -> float:
    """To the first tolerance that Clarabel reaches, which is returned."""
    names = ("tol_gap_abs", "tol_gap_rel", "tol_feas")
    for tolerance in tolerances:
        with contextlib.suppress(cp.error.SolverError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program.solve(solver="CLARABEL", **dict.fromkeys(names, tolerance))
            if program.status == cp.OPTIMAL:
                return tolerance
    return 1.0 if program.status == cp.OPTIMAL_INACCURATE else np.inf
