"""Time and accuracy of one projection in a full-matrix norm: this package, and JAX's QP solvers.

``python -m benchmarks.projections`` prints a table. A projection onto a box, simplex or polyhedron
is a quadratic program; ``pip install qpax mpax`` adds their columns. "Warm" starts from the
multipliers of the round before, whose matrix lacked one rank-one term. Errors are relative to
this package in float64, which agrees with Clarabel (``tests/test_convex_projections.py``).
"""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np

import optax_varynorm as vn
from benchmarks.timing import interleave


def rounds(dimension, condition, seed=0):
    """Two successive matrices of one game, and the points to project."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(dimension, dimension)))[0]
    before = (basis * np.geomspace(2, 2 * condition, dimension)) @ basis.T
    gradient = rng.normal(size=dimension) / np.sqrt(dimension)
    point = rng.normal(size=dimension)
    after = before + np.outer(gradient, gradient)
    return (before, point), (after, point + 0.01 * rng.normal(size=dimension))


def sets(dimension):
    """Domain, and ``G w <= h``, ``E w = f`` of the same set."""
    eye, none = np.eye(dimension), (np.zeros((0, dimension)), np.zeros(0))
    rows = np.random.default_rng(1).normal(size=(dimension // 2, dimension))
    bound = np.full(2 * dimension, 0.5)
    return {
        "box": (vn.box(-0.5, 0.5), (np.vstack([eye, -eye]), bound), none),
        "simplex": (vn.simplex(), (-eye, np.zeros(dimension)), (np.ones((1, dimension)), [1.0])),
        "polyhedron": (vn.polyhedron(rows, np.ones(len(rows))), (rows, np.ones(len(rows))), none),
    }


def matrix_norm():
    """A quadratic norm whose state is the inverse of its matrix."""

    def inverse_matrix(inverse):
        def block(indices):
            return inverse if indices is None else inverse[indices][:, indices]

        return vn.InverseMatrix(jnp.diagonal(inverse), block)

    return vn.simple_norm(
        init=lambda params: jnp.eye(params.size),
        observe_gradient=lambda state, gradient: state,
        to_dual=jnp.linalg.solve,
        to_primal=lambda inverse, gradient: inverse @ gradient,
        inverse=inverse_matrix,
    )


def solvers(domain, inequalities, equalities, first, second, dtype):
    """Programs without arguments that return the projected point."""
    norm = matrix_norm()
    project = jax.jit(lambda state, v, mu: domain.project(norm, state, v, mu))
    inverses = [jnp.asarray(np.linalg.inv(a), dtype) for a, _ in (first, second)]
    points = [jnp.asarray(v, dtype) for _, v in (first, second)]
    nothing = domain.first_multipliers(points[0])
    warm = project(inverses[0], points[0], nothing).multipliers
    programs = {
        "ours, cold": lambda: project(inverses[1], points[1], nothing).point,
        "ours, warm": lambda: project(inverses[1], points[1], warm).point,
    }
    matrix = jnp.asarray(second[0], dtype)
    linear = -matrix @ points[1]
    g, h, e, f = (jnp.asarray(x, dtype) for x in (*inequalities, *equalities))
    if importlib.util.find_spec("qpax") is not None:
        import qpax

        program = jax.jit(lambda *data: qpax.solve_qp(*data)[0])
        programs["qpax"] = lambda: program(matrix, linear, e, f, g, h)
    if importlib.util.find_spec("mpax") is not None:
        import mpax

        quadratic = mpax.create_qp(matrix, linear, e, f, -g, -h, -jnp.inf, jnp.inf)
        loop = jax.jit(mpax.raPDHG(eps_abs=1e-6, eps_rel=1e-6, verbose=False).optimize)
        programs["mpax"] = lambda: loop(quadratic).primal_solution
    return programs


def main():
    print(f"{'':<34}{'microseconds':>14}{'relative error':>16}")
    for dimension in (32, 128):
        for condition in (1e2, 1e6):
            first, second = rounds(dimension, condition)
            for name, (domain, inequalities, equalities) in sets(dimension).items():
                for dtype in (jnp.float64, jnp.float32):
                    arguments = (domain, inequalities, equalities, first, second)
                    with jax.enable_x64(True):
                        exact = solvers(*arguments, jnp.float64)["ours, cold"]()
                        exact = np.asarray(exact)
                    with jax.enable_x64(dtype == jnp.float64):
                        programs = solvers(*arguments, dtype)
                        timing = interleave({n: (run, 1) for n, run in programs.items()}, 5)
                        for solver, run in programs.items():
                            got = np.asarray(run(), np.float64)
                            error = np.linalg.norm(got - exact) / np.linalg.norm(exact)
                            label = (
                                f"{name} {dimension} {condition:.0e} {jnp.dtype(dtype).name[5:]}"
                            )
                            seconds = timing.seconds_a_round(solver)
                            row = f"{label:<22}{solver:<12}"
                            print(f"{row}{1e6 * seconds:>14.0f}{error:>16.1e}", flush=True)


if __name__ == "__main__":
    main()
