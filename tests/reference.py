"""A slow, literal float64 transcription of "Adaptive Online Learning with Varying Norms".

Algorithm 1 (alg:1dred), Algorithm 2 (alg:varynorm) and the coin-betting learner of the proof of
thm:fullonedolo, written to be read next to the paper: every quantity is recomputed densely in
every round and nothing is updated recursively. Paper indices start at 1; arrays start at 0, so
row t - 1 of a (T + 1)-row array is the quantity with index t (and entry t of S_0..S_T and of
Wealth_0..Wealth_T is the quantity with index t).

Choices where the paper is silent or inconsistent: the regularizer constant is Algorithm 1's
1/sqrt(2 sigma); the gradients that define the norms are the true ones while theta_t and S_t are
built from what the FTRL layer receives; the paper's origin is an arbitrary point `start` of W;
without a domain the gradient reaches Algorithm 1 as it is, with no factor 1/2. Gradients are never
clipped: ||g_t||_{t-1,*} <= 1 is the caller's business.

Run as a script for the self-check.
"""

import math
import time
from dataclasses import dataclass

import numpy as np

# --- Norms -------------------------------------------------------------------------------------
#
# A norm object is one ||.||_t. `observe(g)` returns the next one and leaves the old one alone.


class QuadraticNorm:
    """||x||^2 = x' A x with A = `matrix` positive definite; 1-strongly convex."""

    sigma = 1.0
    matrix: np.ndarray

    def norm(self, x):
        return math.sqrt(max(0.0, x @ self.matrix @ x))

    def dual_norm(self, g):
        return math.sqrt(max(0.0, g @ np.linalg.solve(self.matrix, g)))

    def dual_vector(self, x):
        """The gradient of 1/2 ||x||^2."""
        return self.matrix @ x

    def primal_vector(self, g):
        """The gradient of 1/2 ||g||_*^2."""
        return np.linalg.solve(self.matrix, g)


class FullMatrix(QuadraticNorm):
    """sec:fullmatrix, ||x||_t^2 = 2 L^2 ||x||_2^2 + x' G_t x."""

    def __init__(self, d, L=1.0, G=None):
        self.d, self.L = d, L
        self.G = np.zeros((d, d)) if G is None else G
        self.matrix = 2.0 * L**2 * np.eye(d) + self.G

    def observe(self, g):
        return FullMatrix(self.d, self.L, self.G + np.outer(g, g))


class FullMatrixRoot(QuadraticNorm):
    """sec:adagrad, ||x||_t^2 = L x' (L^2 I + G_t)^{1/2} x."""

    def __init__(self, d, L=1.0, G=None):
        self.d, self.L = d, L
        self.G = np.zeros((d, d)) if G is None else G
        eigenvalues, V = np.linalg.eigh(L**2 * np.eye(d) + self.G)
        self.matrix = L * (V * np.sqrt(eigenvalues)) @ V.T

    def observe(self, g):
        return FullMatrixRoot(self.d, self.L, self.G + np.outer(g, g))


def lp_norm(x, p):
    scale = np.max(np.abs(x))
    return 0.0 if scale == 0.0 else float(scale * np.sum(np.abs(x / scale) ** p) ** (1.0 / p))


class Lp:
    """The fixed norm ||x||_t = L ||x||_p with 1 < p <= 2; (p - 1)-strongly convex."""

    def __init__(self, d, L=1.0, p=2.0):
        self.d, self.L, self.p = d, L, p
        self.q = p / (p - 1.0)
        self.sigma = p - 1.0

    def observe(self, g):
        return self

    @property
    def matrix(self):
        if self.p != 2:
            raise ValueError("only the l2 norm is quadratic")
        return self.L**2 * np.eye(self.d)

    def norm(self, x):
        return self.L * lp_norm(x, self.p)

    def dual_norm(self, g):
        return lp_norm(g, self.q) / self.L

    def dual_vector(self, x):
        """The gradient of 1/2 L^2 ||x||_p^2."""
        n = lp_norm(x, self.p)
        return 0.0 * x if n == 0 else self.L**2 * n * np.sign(x) * np.abs(x / n) ** (self.p - 1)

    def primal_vector(self, g):
        """The gradient of 1/2 ||g||_q^2 / L^2."""
        n = lp_norm(g, self.q)
        return 0.0 * g if n == 0 else n * np.sign(g) * np.abs(g / n) ** (self.q - 1) / self.L**2


# --- Domains -----------------------------------------------------------------------------------
#
# `project(norm, v)` is argmin_{w in W} ||v - w||; `violation(w)` is how far w is from satisfying
# the constraint. A point that already satisfies it comes back as v itself.


class Hyperplane:
    """{w : <a, w> = b}. Stationarity: dual_vector(v - w) = multiplier * a."""

    def __init__(self, a, b):
        self.a, self.b = np.asarray(a, float), float(b)

    def violation(self, w):
        return abs(self.a @ w - self.b)

    def project(self, norm, v):
        if self.violation(v) == 0:
            return v
        multiplier = (self.a @ v - self.b) / norm.dual_norm(self.a) ** 2
        return v - multiplier * norm.primal_vector(self.a)


class HalfSpace(Hyperplane):
    """{w : <a, w> <= b}; outside it the projection is the one on the bounding hyperplane."""

    def violation(self, w):
        return max(0.0, self.a @ w - self.b)


class Affine:
    """{w : M w = b}, M of full row rank; quadratic norms only."""

    def __init__(self, M, b):
        self.M, self.b = np.asarray(M, float), np.asarray(b, float)

    def violation(self, w):
        return np.max(np.abs(self.M @ w - self.b))

    def project(self, norm, v):
        """Solve A (w - v) + M' multipliers = 0 together with M (w - v) = b - M v."""
        if self.violation(v) == 0:
            return v
        m, d = self.M.shape
        kkt = np.block([[norm.matrix, self.M.T], [self.M, np.zeros((m, m))]])
        return v + np.linalg.solve(kkt, np.concatenate([np.zeros(d), self.b - self.M @ v]))[:d]


class L2Ball:
    """{w : ||w - center||_2 <= radius}, radius > 0; quadratic norms only."""

    def __init__(self, radius, center):
        self.radius, self.center = float(radius), np.asarray(center, float)

    def violation(self, w):
        return max(0.0, np.linalg.norm(w - self.center) - self.radius)

    def project(self, norm, v):
        """Bisection on mu in (A + mu I)(w - center) = A (v - center), ||w - center|| = radius."""
        if self.violation(v) == 0:
            return v
        eigenvalues, V = np.linalg.eigh(norm.matrix)
        rotated = V.T @ (v - self.center)

        def offset(mu):
            return eigenvalues / (eigenvalues + mu) * rotated

        low, high = 0.0, 1.0
        while np.linalg.norm(offset(high)) > self.radius:
            high *= 2.0
        while low < (mu := (low + high) / 2.0) < high:
            if np.linalg.norm(offset(mu)) > self.radius:
                low = mu
            else:
                high = mu
        return self.center + V @ offset(high)


# --- The learners ------------------------------------------------------------------------------


class CoinBetting:
    """The one-dimensional learner of the proof of thm:fullonedolo: y_t = v_t Wealth_{t-1}."""

    def __init__(self, epsilon=1.0, Z=1.0):
        self.Z = Z
        self.wealth, self.log_wealth = epsilon, math.log(epsilon)
        self.fraction = 0.0  # v_t
        self.z_sum, self.z_square_sum = 0.0, 0.0

    def play(self):
        return self.fraction * self.wealth

    def receive(self, s):
        v = self.fraction
        self.wealth = self.wealth - s * self.play()
        self.log_wealth = self.log_wealth + math.log(1.0 - s * v)
        z = s / (1.0 - s * v)
        self.z_sum += z
        self.z_square_sum += z**2
        # argmin over [-1/2, 1/2] of psi_t(v) + v sum z, psi_t(v) = Z/2 (5 + sum z^2) v^2.
        minimizer = -self.z_sum / (self.Z * (5.0 + self.z_square_sum))
        self.fraction = min(0.5, max(-0.5, minimizer))


def regularizer_weight(norm, S):
    """psi_t(x) = weight * ||x||_t^2 on ||x||_t <= 1 (eqn:ftrl with Algorithm 1's constant)."""
    return math.sqrt(1.0 + S) / math.sqrt(2.0 * norm.sigma)


def ftrl_point(norm, theta, S):
    """x_{t+1} = argmin of psi_t(x) + <theta_t, x>, in closed form.

    Along direction n with ||n||_t = 1 the objective is weight r^2 + r <theta, n>, so the best n
    attains <theta, n> = -||theta||_{t,*} and the best r is ||theta||_{t,*} / (2 weight), at most 1.
    """
    size = norm.dual_norm(theta)
    if size == 0:
        return np.zeros_like(theta)
    radius = min(1.0, size / (2.0 * regularizer_weight(norm, S)))
    return -radius * norm.primal_vector(theta) / size


def surrogate_gradient(norm, g, v, w, surrogate):
    """The loss that Algorithm 2 (alg:varynorm) sends to Algorithm 1 after playing w = Pi_t(v).

    "paper": the subgradient at v of 1/2 (<g, .> + ||g||_{t-1,*} S_t(.)), the zero subgradient of
    S_t being taken where v = w. "tight": g without its component along v - w when that component
    would push v further away from the domain.
    """
    distance = norm.norm(v - w)
    if surrogate == "paper":
        if distance == 0:
            return 0.5 * g
        return 0.5 * (g + norm.dual_norm(g) * norm.dual_vector((v - w) / distance))
    if surrogate == "tight":
        if distance == 0 or g @ (v - w) >= 0:
            return g
        n = (v - w) / distance
        return g - (g @ n) * norm.dual_vector(n)
    raise ValueError(f"unknown surrogate {surrogate!r}")


@dataclass
class Play:
    """What happened in T rounds; see the module docstring for the indexing."""

    points: np.ndarray  # (T + 1, d): w_1..w_{T+1}
    unprojected: np.ndarray  # (T + 1, d): v_1..v_{T+1}
    directions: np.ndarray  # (T + 1, d): x_1..x_{T+1}
    scales: np.ndarray  # (T + 1,): y_1..y_{T+1}
    fractions: np.ndarray  # (T + 1,): the betting fractions v_1..v_{T+1} of the 1-D learner
    wealth: np.ndarray  # (T + 1,): Wealth_0..Wealth_T
    log_wealth: np.ndarray  # (T + 1,): the same from sum log(1 - s_t v_t)
    gradients: np.ndarray  # (T, d): g_1..g_T
    surrogates: np.ndarray  # (T, d): what Algorithm 1 received (g_t itself without a domain)
    coins: np.ndarray  # (T,): s_1..s_T
    dual_norms: np.ndarray  # (T,): ||g_t||_{t-1,*}
    surrogate_dual_norms: np.ndarray  # (T,): the same of the surrogates
    squared_dual_norm_sum: np.ndarray  # (T + 1,): S_0..S_T, of the surrogates
    start: np.ndarray
    norms: tuple  # the norm objects ||.||_{T-1} and ||.||_T

    def regret(self, u):
        """sum <g_t, w_t - u>."""
        return float(np.sum(self.gradients * (self.points[:-1] - u)))


def play(norm, gradients, start, epsilon=1.0, Z=1.0, domain=None, surrogate="tight", rounds=None):
    """Algorithm 2 (alg:varynorm) around Algorithm 1 (alg:1dred); Algorithm 1 alone without domain.

    `norm` is ||.||_0. `gradients` is a (T, d) array or, with `rounds` = T, a callable
    (t, w_t) -> g_t with t = 1..T.
    """
    T = len(gradients) if rounds is None else rounds
    start = np.asarray(start, float)
    learner = CoinBetting(epsilon, Z)
    theta, S = np.zeros_like(start), 0.0
    x = np.zeros_like(start)  # argmin psi_0
    previous = norm
    log = {name: [] for name in Play.__dataclass_fields__ if name not in ("start", "norms")}

    def propose():
        y = learner.play()
        v = start + y * x
        w = v if domain is None else domain.project(norm, v)
        log["points"].append(w)
        log["unprojected"].append(v)
        log["directions"].append(x)
        log["scales"].append(y)
        log["fractions"].append(learner.fraction)
        log["wealth"].append(learner.wealth)
        log["log_wealth"].append(learner.log_wealth)
        log["squared_dual_norm_sum"].append(S)
        return v, w

    for t in range(1, T + 1):
        v, w = propose()
        g = np.asarray(gradients(t, w) if callable(gradients) else gradients[t - 1], float)
        g_hat = g if domain is None else surrogate_gradient(norm, g, v, w, surrogate)
        s = float(g_hat @ x)
        log["gradients"].append(g)
        log["surrogates"].append(g_hat)
        log["coins"].append(s)
        log["dual_norms"].append(norm.dual_norm(g))
        log["surrogate_dual_norms"].append(norm.dual_norm(g_hat))

        S = S + norm.dual_norm(g_hat) ** 2
        theta = theta + g_hat
        previous, norm = norm, norm.observe(g)
        x = ftrl_point(norm, theta, S)
        learner.receive(s)
    propose()
    arrays = {name: np.array(values) for name, values in log.items()}
    return Play(**arrays, start=start, norms=(previous, norm))


# --- Bounds and examples -----------------------------------------------------------------------


def regret_bound(record, u, epsilon, factor=1.0):
    """thm:fullonedolo for Z = 1 plus thm:constrainedftrl, times 2 for the "paper" surrogate.

    The 1-D part is stated in the s_t. The FTRL part carries the constants of Algorithm 1's
    regularizer, (sqrt(1 + S_{T-1}) + sqrt(S_T)) / sqrt(2 sigma), which thm:1dred rounds up.
    """
    norm, S = record.norms[0], record.squared_dual_norm_sum
    size, s = norm.norm(u - record.start), np.sum(record.coins**2)
    log_term = math.log(math.e + size * (7.0 + 4.0 * s) / epsilon)
    one_d = epsilon + 2.0 * size * max(math.sqrt((3.0 + 3.0 * s) * log_term), 2.0 * log_term)
    ftrl = size * (math.sqrt(1.0 + S[-2]) + math.sqrt(S[-1])) / math.sqrt(2.0 * norm.sigma)
    return factor * (one_d + ftrl)


def section_adagrad_sequence(d, T):
    """The example of sec:adagrad on the standard basis; T = 2 d + 2 k sqrt(d). Returns (T, d)."""
    root = math.isqrt(d)
    if root**2 != d or 2 * d > T or (T - 2 * d) % (2 * root):
        raise ValueError("d must be a perfect square and T = 2 d + 2 k sqrt(d)")
    e = np.eye(d)
    rows = [*e, *(-e)]
    for j in range((T - 2 * d) // root):
        for i in range(root):
            rows.append(e[-1] / math.sqrt(d) + (-1) ** j * math.sqrt(1.0 - 1.0 / d) * e[i])
    return np.array(rows)


# --- Self-check --------------------------------------------------------------------------------


def ftrl_point_numerically(norm, theta, S, tolerance=1e-8):
    """argmin of psi_t(x) + <theta, x> by compass search over directions, using only `norm.norm`.

    On each ray the objective is a scalar quadratic, minimised exactly on [0, 1].
    """
    weight = regularizer_weight(norm, S)

    def best_on_ray(u):
        n = u / norm.norm(u)
        r = min(1.0, max(0.0, -(theta @ n) / (2.0 * weight)))
        return weight * r**2 + r * (theta @ n), r * n

    u, step = -theta / np.linalg.norm(theta), 0.5
    value = best_on_ray(u)[0]
    demand = 1e-3 * abs(value)  # a move counts when it gains demand * step^2
    moves = np.vstack([np.eye(len(u)), -np.eye(len(u))])
    while step > tolerance:
        trial = min((u + step * move for move in moves), key=lambda c: best_on_ray(c)[0])
        if best_on_ray(trial)[0] < value - demand * step**2:
            value, u = best_on_ray(trial)[0], trial
        else:
            step /= 2.0
    return best_on_ray(u)[1]


def _some_norms(d, L, rng):
    """Each kind of norm after a few random gradients."""
    norms = [FullMatrix(d, L), FullMatrixRoot(d, L), *(Lp(d, L, p) for p in (2.0, 1.5, 1.2))]
    for g in rng.normal(size=(6, d)) * L / math.sqrt(d):
        norms = [norm.observe(g) for norm in norms]
    return norms


def _some_domains(d, start, rng, quadratic):
    """Domains that contain `start`."""
    a, M = rng.normal(size=d), rng.normal(size=(2, d))
    yield Hyperplane(a, a @ start)
    yield HalfSpace(a, a @ start + 0.1)
    if quadratic:
        yield Affine(M, M @ start)
        yield L2Ball(0.7, start + 0.1 * rng.normal(size=d))


def _check_norms_and_ftrl(rng, d=4):
    for L in (1.0, 3.0):
        for norm in _some_norms(d, L, rng):
            x, g = rng.normal(size=d), rng.normal(size=d)
            h = 1e-6 * np.eye(d)
            for size, gradient, at in (
                (norm.norm, norm.dual_vector, x),
                (norm.dual_norm, norm.primal_vector, g),
            ):
                slope = [(size(at + e) ** 2 - size(at - e) ** 2) / 4e-6 for e in h]
                np.testing.assert_allclose(slope, gradient(at), rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(norm.primal_vector(norm.dual_vector(x)), x, rtol=1e-9)
            samples = rng.normal(size=(2000, d))
            assert max(g @ y / norm.norm(y) for y in samples) <= norm.dual_norm(g) * (1 + 1e-12)
            for scale, S in ((0.1, 0.0), (0.5, 2.0), (20.0, 5.0)):
                theta = scale * L * g
                x = ftrl_point(norm, theta, S)
                assert norm.norm(x) <= 1 + 1e-12
                np.testing.assert_allclose(ftrl_point_numerically(norm, theta, S), x, atol=2e-6 / L)
                weight = regularizer_weight(norm, S)
                value = weight * norm.norm(x) ** 2 + theta @ x
                for y in samples:
                    y = y / norm.norm(y) * rng.uniform()
                    assert weight * norm.norm(y) ** 2 + theta @ y >= value - 1e-12 * scale * L


def _check_projections(rng, d=5):
    for norm in (*_some_norms(d, 1.0, rng), *_some_norms(d, 3.0, rng)):
        quadratic = norm.sigma == 1
        # dual_vector raises the rounding errors of v - w to the power p - 1.
        slack = 1e-10 if norm.sigma >= 0.5 else 1e-6
        for domain in _some_domains(d, rng.normal(size=d), rng, quadratic):
            for v in 2.0 * rng.normal(size=(20, d)):
                w = domain.project(norm, v)
                assert domain.violation(w) <= 1e-13 * max(1, np.linalg.norm(v))
                normal = norm.dual_vector(v - w)
                for u in 2.0 * rng.normal(size=(50, d)):
                    u = domain.project(Lp(d) if quadratic else norm, u)
                    assert normal @ (u - w) <= slack * norm.norm(v - w) * norm.norm(u - w)


def _check_play(rng, d=4, T=150):
    worst, too_long = 0.0, 0.0
    start = rng.normal(size=d)
    for L, epsilon in ((1.0, 1.0), (3.0, 0.1)):
        for first in (FullMatrix(d, L), FullMatrixRoot(d, L), Lp(d, L, 2.0), Lp(d, L, 1.5)):
            quadratic = first.sigma == 1
            target = start + rng.normal(size=d)

            def drift(t, w, first=first, target=target):
                g = rng.normal(size=d) + 2.0 * np.sign(w - target)
                return g / first.dual_norm(g) * rng.uniform(0.3, 1.0)

            domains = [None, *_some_domains(d, start, rng, quadratic)]
            for domain in domains:
                for surrogate in ("paper", "tight"):
                    r = play(
                        first, drift, start, epsilon, domain=domain, surrogate=surrogate, rounds=T
                    )
                    assert np.all(r.dual_norms <= 1 + 1e-12)
                    np.testing.assert_allclose(np.log(r.wealth), r.log_wealth, atol=1e-12)
                    np.testing.assert_allclose(
                        r.wealth[1:],
                        epsilon - np.cumsum(r.coins * r.scales[:-1]),
                        rtol=1e-9,
                        atol=1e-12,
                    )
                    if not quadratic and surrogate == "tight" and domain is not None:
                        too_long = max(too_long, np.max(r.surrogate_dual_norms / r.dual_norms))
                        if np.any(r.surrogate_dual_norms > 1):
                            continue
                    else:
                        assert np.all(r.surrogate_dual_norms <= r.dual_norms + 1e-12)
                    factor = 2.0 if domain is not None and surrogate == "paper" else 1.0
                    for u in target + rng.normal(size=(50, d)) * rng.choice([0.1, 1, 10]):
                        if domain is not None:
                            u = domain.project(Lp(d) if quadratic else first, u)
                            lost = np.sum(r.surrogates * (r.unprojected[:-1] - u), axis=1)
                            true = np.sum(r.gradients * (r.points[:-1] - u), axis=1)
                            assert np.all(true <= factor * lost + 1e-9 * (1 + np.abs(lost)))
                        ratio = r.regret(u) / regret_bound(r, u, epsilon, factor)
                        assert ratio <= 1
                        worst = max(worst, ratio)
    print(f"largest regret / bound: {worst:.3f}")
    print(f"largest ||tight surrogate||_* / ||g||_* for p = 1.5: {too_long:.3f}")


def _print_section_adagrad(d=64, T=768):
    gradients, origin, u = section_adagrad_sequence(d, T), np.zeros(d), -np.eye(d)[-1]
    for surrogate in ("paper", "tight"):
        for first in (FullMatrixRoot(d), Lp(d), FullMatrix(d)):
            began = time.perf_counter()
            r = play(first, gradients, origin, domain=L2Ball(1.0, origin), surrogate=surrogate)
            seconds = time.perf_counter() - began
            name = type(first).__name__
            print(f"{surrogate:6} {name:15} regret {r.regret(u):9.5f}  ({seconds:.1f} s)")


if __name__ == "__main__":
    for seed in range(3):
        generator = np.random.default_rng(seed)
        _check_norms_and_ftrl(generator)
        _check_projections(generator)
        _check_play(generator)
    _print_section_adagrad()
