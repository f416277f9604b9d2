"""A slow, literal float64 transcription of the scale-invariant algorithms of sec:scale.

Algorithm 3 (alg:diagscale), Algorithm 4 (alg:scale) with the paper's maximum and with a quadratic
cover in its place, and the second algorithm of Kempka et al. as sec:scalefull describes it. The
game is online linear supervised learning: f_t is announced, w_t is played, nabla_t in [-1, 1] comes
back and g_t = nabla_t f_t. Every learner is Algorithm 1 without a domain, started at zero, with
Z = 1, sigma = 1 and the regularizer constant 1/sqrt(2). `play(f_t)` completes ||.||_{t-1} with f_t
and returns w_t; `learn(g_t)` receives the gradient.

Choices where the paper is silent: predictions are determined, points are not while the features do
not span the space, so the point is the one in the span of the features; the maximum's FTRL problem
may have many solutions, and then the one with the least sum_i <f_i, x>^2 is taken, which no
invertible map changes and which predicts 0 for a feature outside the span of the earlier ones.

Run with `python -m tests.reference_features` for the self-check.
"""

import math
from dataclasses import dataclass
from functools import partial

import cvxpy as cp
import numpy as np

from tests.reference import CoinBetting, Lp, ftrl_point, play, regret_bound

TOLERANCE = 1e-10  # relative size below which a direction counts as rounding errors

# --- Seminorms ---------------------------------------------------------------------------------
#
# A norm object is one ||.||_t, perhaps still without f_{t+1}. `with_gradient(g)` and
# `with_feature(f)` return the next one and leave the old one alone. Gradients must be in the span
# of the features, which g_t = nabla_t f_t always is.


class ScalarNorm:
    """||x|| = scale |x| in one dimension, on arrays of length one; 0/0 = 0."""

    sigma = 1.0
    scale: float

    def norm(self, x):
        return self.scale * abs(x[0])

    def dual_norm(self, g):
        return 0.0 if g[0] == 0 else abs(g[0]) / self.scale

    def primal_vector(self, g):
        return 0.0 * g if g[0] == 0 else g / self.scale**2


class LargestFeature(ScalarNorm):
    """alg:diagscale, ||x||_{t-1} = m_t |x| with m_t = max_{i <= t} |f_i|."""

    def __init__(self, d=1, m=0.0):
        self.scale = m

    def with_gradient(self, g):
        return self

    def with_feature(self, f):
        return LargestFeature(m=max(self.scale, abs(f[0])))


class ScalarMax(ScalarNorm):
    """alg:scale in one dimension, ||x||_t^2 = (sum_{i <= t} g_i^2 + 2 max_{i <= t+1} f_i^2) x^2.

    The factor of ||.||_0, before the first gradient that is not zero, is 1 and not 2.
    """

    def __init__(self, d=1, squares=0.0, largest=0.0, factor=1.0):
        self.squares, self.largest, self.factor = squares, largest, factor
        self.scale = math.sqrt(squares + factor * largest**2)

    def with_gradient(self, g):
        if not np.any(g):
            return self
        return ScalarMax(squares=self.squares + g[0] ** 2, largest=self.largest, factor=2.0)

    def with_feature(self, f):
        return ScalarMax(1, self.squares, max(self.largest, abs(f[0])), self.factor)


def balanced_svd(rows):
    """The SVD of the rows with every column divided by its largest entry, cut to the rank."""
    scale = np.max(np.abs(rows), axis=0, initial=0.0)
    scale[scale == 0] = 1.0
    U, S, Vt = np.linalg.svd(rows / scale, full_matrices=False)
    rank = np.sum(TOLERANCE * np.max(S, initial=0.0) < S)
    return scale, U[:, :rank], S[:rank], Vt[:rank]


def span_coordinates(rows):
    """B whose columns are a basis of the span of the rows, such that `rows @ B` is orthonormal.

    z stands for the point x = B z and B' f for the vector f of the span: <f, x> = <B' f, z>. The
    Gram matrix of the rows is the identity in these coordinates.
    """
    scale, _, S, Vt = balanced_svd(rows)
    B = (Vt / S[:, None] / scale).T
    if len(S) < np.count_nonzero(np.any(rows, axis=0)):
        Q = np.linalg.qr((Vt * scale).T)[0]
        B = Q @ (Q.T @ B)
    return B


def is_in_span(f, rows):
    seen = np.any(rows, axis=0)
    if np.any(f[~seen]):
        return False
    scale, _, _, Vt = balanced_svd(rows)
    h = f / scale
    return np.linalg.norm(h - Vt.T @ (Vt @ h)) <= 100 * TOLERANCE * np.linalg.norm(h)


class MaxNorm:
    """alg:scale, ||x||_0^2 = <f_1, x>^2 and ||x||_t^2 = x' G_t x + 2 max_{i <= t+1} <f_i, x>^2.

    1/2 ||x||_t^2 is convex but not strongly convex (see `_print_counterexample`); sigma = 1 is what
    the paper uses.
    """

    sigma = 1.0

    def __init__(self, d, features=None, gradients=None):
        self.features = np.zeros((0, d)) if features is None else features
        self.gradients = np.zeros((0, d)) if gradients is None else gradients
        self.factor = 1.0 if len(self.gradients) == 0 else 2.0
        self.solved = {}

    def with_gradient(self, g):
        if not np.any(g):
            return self
        return MaxNorm(len(g), self.features, np.vstack([self.gradients, g]))

    def with_feature(self, f):
        return MaxNorm(len(f), np.vstack([self.features, f]), self.gradients)

    def norm(self, x):
        largest = np.max(np.abs(self.features @ x), initial=0.0)
        return math.sqrt(np.sum((self.gradients @ x) ** 2) + self.factor * largest**2)

    def dual_norm(self, g):
        return math.sqrt(max(0.0, g @ self.primal_vector(g)))

    def primal_vector(self, g):
        """The argmax of <g, x> - 1/2 ||x||^2 over the span of the features."""
        if g.tobytes() not in self.solved:
            B = span_coordinates(self.features)
            theta, x = B.T @ g, np.zeros_like(g)
            size = np.linalg.norm(theta)
            if size > 0:
                args = self.features @ B, self.gradients @ B, self.factor, theta / size
                x = size * (B @ solve_max_norm(*args)[0])
            self.solved[g.tobytes()] = x
        return self.solved[g.tobytes()]


def clarabel(objective, constraints):
    names = "tol_gap_abs", "tol_gap_rel", "tol_feas", "tol_ktratio"
    problem = cp.Problem(cp.Minimize(objective), constraints)
    problem.solve(solver="CLARABEL", **dict.fromkeys(names, 1e-12))
    assert problem.status in ("optimal", "optimal_inaccurate"), problem.status


def solve_max_norm(U, gradients, factor, theta):
    """argmax <theta, z> - 1/2 ||z||^2 for ||z||^2 = |gradients z|_2^2 + factor |U z|_inf^2.

    Also returns bounds low <= ||theta||_*^2 <= high: (<theta, z> / ||z||)^2, and theta' A^{-1}
    theta with A = gradients' gradients + factor sum_i lambda_i u_i u_i' for a lambda in the
    simplex. Clarabel finds the features that attain the maximum; the optimality conditions are then
    solved as linear equations, whose least-squares solution has the least |z|_2 (U' U = 1).
    """
    r, G = U.shape[1], gradients.T @ gradients
    root = np.linalg.qr(gradients)[1] if len(gradients) > r else gradients
    z, s = cp.Variable(r), cp.Variable()
    quadratic = factor * cp.square(s) + (cp.sum_squares(root @ z) if len(root) else 0.0)
    below, above = U @ z <= s, -s <= U @ z
    clarabel(quadratic / 2.0 - theta @ z, [below, above])

    signed_multipliers = below.dual_value - above.dual_value
    sign = np.sign(signed_multipliers)
    active = np.abs(signed_multipliers) / factor > s.value - np.abs(U @ z.value)
    F = (sign[:, None] * U)[active]
    m = len(F)
    # G z + F' mu = theta, F z = s, factor s = sum mu.
    system = np.block(
        [
            [G, np.zeros((r, 1)), F.T],
            [F, -np.ones((m, 1)), np.zeros((m, m))],
            [np.zeros((1, r)), np.full((1, 1), factor), -np.ones((1, m))],
        ]
    )
    solution = np.linalg.lstsq(system, np.append(theta, np.zeros(m + 1)), rcond=1e-13)[0]
    point = solution[:r]
    largest = np.max(np.abs(U @ z.value))
    if np.max(np.abs(U @ point)) > largest * (1.0 + 1e-7):
        # Many maximizers, and the least-squares one breaks a constraint: choose among them.
        held = [root @ z == root @ z.value] if len(root) else []
        clarabel(cp.sum_squares(z), [*held, cp.abs(U @ z) <= largest * (1.0 + 1e-12)])
        point = z.value

    squared = point @ G @ point + factor * np.max(np.abs(U @ point)) ** 2
    simplex = np.abs(signed_multipliers) / np.sum(np.abs(signed_multipliers))
    A = G + factor * (U.T * simplex) @ U
    low = (theta @ point) ** 2 / squared
    high = theta @ np.linalg.lstsq(A, theta, rcond=1e-13)[0]
    assert high - low <= 1e-8 * high, (low, high)
    return point, low, high


class Ellipsoid:
    """DESIGN 3.7, ||x||^2 = x' A x, with A as the Gram matrix of `rows`.

    A gradient adds g g'. A feature with q = f' A^+ f > 1 adds (1 - 1/q) f f', after which q = 1.
    start="span": a feature outside the range of A adds f f' instead. start="coordinate": before
    that, A_ii grows by f_i^2 for every coordinate i that is nonzero for the first time.
    """

    sigma = 1.0

    def __init__(self, d, start="span", rows=None):
        if start not in ("span", "coordinate"):
            raise ValueError(f"unknown start {start!r}")
        self.start = start
        self.rows = np.zeros((0, d)) if rows is None else rows

    def plus(self, *rows):
        return Ellipsoid(self.rows.shape[1], self.start, np.vstack([self.rows, *rows]))

    def with_gradient(self, g):
        return self.plus(g)

    def with_feature(self, f):
        if self.start == "coordinate":
            new = (f != 0) & ~np.any(self.rows, axis=0)
            entered = self.plus(*np.diag(f)[new])
        elif not is_in_span(f, self.rows):
            return self.plus(f)
        else:
            entered = self
        q = entered.dual_norm(f) ** 2
        return entered.plus(math.sqrt(1.0 - 1.0 / q) * f) if q > 1 else entered

    def norm(self, x):
        return float(np.linalg.norm(self.rows @ x))

    def dual_norm(self, g):
        return float(np.linalg.norm(span_coordinates(self.rows).T @ g))

    def primal_vector(self, g):
        """A^+ g."""
        B = span_coordinates(self.rows)
        return B @ (B.T @ g)


# --- The learners ------------------------------------------------------------------------------


class Learner:
    """alg:1dred with the coin bettor, in a norm that is told the features."""

    def __init__(self, norm, d, epsilon=1.0):
        self.epsilon = epsilon
        self.bettor = CoinBetting(epsilon)
        self.norm = norm(d)
        self.start = np.zeros(d)
        self.theta = np.zeros(d)
        self.coins, self.dual_norms = np.zeros(0), np.zeros(0)
        self.squared_dual_norm_sum = np.zeros(1)  # S_0..S_t
        self.scaled = 0.0  # sum s_t y_t

    def play(self, f):
        self.norm = self.norm.with_feature(f)  # ||.||_{t-1}
        self.x = ftrl_point(self.norm, self.theta, self.squared_dual_norm_sum[-1])
        return self.bettor.play() * self.x

    def learn(self, g):
        s, size = float(g @ self.x), self.norm.dual_norm(g)
        self.coins = np.append(self.coins, s)
        self.dual_norms = np.append(self.dual_norms, size)
        total = self.squared_dual_norm_sum[-1] + size**2
        self.squared_dual_norm_sum = np.append(self.squared_dual_norm_sum, total)
        self.theta = self.theta + g
        self.scaled += s * self.bettor.play()
        self.bettor.receive(s)
        self.norms = (self.norm, self.norm.with_gradient(g))  # ||.||_{t-1}, and ||.||_t without f
        self.norm = self.norms[1]

    def bound(self, u):
        """thm:fullonedolo plus thm:constrainedftrl; the latter is proved for quadratic norms."""
        return regret_bound(self, u, self.epsilon)

    def leaves(self):
        return [self]


class PerCoordinate:
    """alg:diagscale, one one-dimensional learner, and one epsilon, for every coordinate."""

    def __init__(self, norm, d, epsilon=1.0):
        self.copies = [Learner(norm, 1, epsilon) for _ in range(d)]

    def play(self, f):
        return np.concatenate([copy.play(f[i : i + 1]) for i, copy in enumerate(self.copies)])

    def learn(self, g):
        for i, copy in enumerate(self.copies):
            copy.learn(g[i : i + 1])

    def bound(self, u):
        return sum(copy.bound(u[i : i + 1]) for i, copy in enumerate(self.copies))

    def leaves(self):
        return self.copies


class Combined:
    """The sum of the learners' points; every learner receives the same gradient."""

    def __init__(self, learners):
        self.learners = learners

    def play(self, f):
        return sum(learner.play(f) for learner in self.learners)

    def learn(self, g):
        for learner in self.learners:
            learner.learn(g)

    def bound(self, u):
        """The best division of u that gives everything to one learner."""
        zero = [learner.bound(0 * u) for learner in self.learners]
        one = [learner.bound(u) for learner in self.learners]
        return sum(zero) + min(b - a for a, b in zip(zero, one, strict=True))

    def leaves(self):
        return [leaf for learner in self.learners for leaf in learner.leaves()]


class AroundAverage:
    """A learner's point, and as much of the average of the points before as the budget allows."""

    def __init__(self, learner, d, epsilon):
        self.learner, self.epsilon = learner, epsilon
        self.points, self.squared_slopes = [], []
        self.followed_loss = 0.0

    def play(self, f):
        total = sum(a * w for a, w in zip(self.squared_slopes, self.points, strict=True))
        weight = 1 + sum(self.squared_slopes)
        average = total / weight + 0 * f
        most = 0.1 * (self.epsilon * math.sqrt(weight) - self.followed_loss)
        stake = abs(f @ average)
        self.followed = (1 if stake <= most else most / stake) * average
        self.f, self.w = f, self.learner.play(f) + self.followed
        return self.w

    def learn(self, g):
        i = np.argmax(np.abs(self.f))
        self.squared_slopes.append((g[i] / self.f[i]) ** 2 if self.f[i] else 0.0)
        self.points.append(self.w)
        self.followed_loss += g @ self.followed
        self.learner.learn(g)

    def bound(self, u):
        return self.learner.bound(u) + self.epsilon * math.sqrt(1 + sum(self.squared_slopes))

    def leaves(self):
        return self.learner.leaves()


# Each of these is called as learner(d, epsilon).
Algorithm3 = partial(PerCoordinate, LargestFeature)
Kempka = partial(PerCoordinate, ScalarMax)
Algorithm4Max = partial(Learner, MaxNorm)
Algorithm4Span = partial(Learner, partial(Ellipsoid, start="span"))
Algorithm4Coordinate = partial(Learner, partial(Ellipsoid, start="coordinate"))


# --- The game ----------------------------------------------------------------------------------


@dataclass
class LinearPlay:
    """What happened in T rounds; row t - 1 is round t."""

    predictions: np.ndarray  # (T,): <f_t, w_t>
    points: np.ndarray  # (T, d): w_1..w_T
    slopes: np.ndarray  # (T,): nabla_1..nabla_T
    gradients: np.ndarray  # (T, d): g_1..g_T
    learner: object

    def regret(self, u):
        """sum <g_t, w_t - u>."""
        return float(np.sum(self.gradients * (self.points - u)))


def play_linear(learner, features, slope):
    """sec:scale's game. `slope(t, <f_t, w_t>)` is nabla_t in [-1, 1], with t = 1..T."""
    features = np.asarray(features, float)
    log = {name: [] for name in ("predictions", "points", "slopes", "gradients")}
    for t, f in enumerate(features, 1):
        w = learner.play(f)
        prediction = float(f @ w)
        nabla = float(slope(t, prediction))
        assert abs(nabla) <= 1, nabla
        learner.learn(nabla * f)
        for name, value in zip(log, (prediction, w, nabla, nabla * f), strict=True):
            log[name].append(value)
    return LinearPlay(**{name: np.array(values) for name, values in log.items()}, learner=learner)


def algorithm_3(features, slope, epsilon=1.0):
    """alg:diagscale: coordinate i plays in the norm m_{t,i} |x| with its own epsilon."""
    return play_linear(Algorithm3(features.shape[1], epsilon), features, slope)


def kempka(features, slope, epsilon=1.0):
    """sec:scalefull: a one-dimensional copy of alg:scale in every coordinate."""
    return play_linear(Kempka(features.shape[1], epsilon), features, slope)


def algorithm_4_max(features, slope, epsilon=1.0):
    """alg:scale to the letter."""
    return play_linear(Algorithm4Max(features.shape[1], epsilon), features, slope)


def algorithm_4_ellipsoid(features, slope, epsilon=1.0, start="span"):
    """alg:scale with the quadratic cover of DESIGN 3.7 in place of the maximum."""
    learner = Learner(partial(Ellipsoid, start=start), features.shape[1], epsilon)
    return play_linear(learner, features, slope)


def combined(features, slope, parts, average):
    """The sum of learners around the average; `parts` is a list of (learner, epsilon)."""
    d = features.shape[1]
    learners = [make(d, epsilon) for make, epsilon in parts]
    return play_linear(AroundAverage(Combined(learners), d, average), features, slope)


# --- Self-check --------------------------------------------------------------------------------


def logistic_slope(labels):
    """nabla_t of log(1 + exp(-y p)), y in {-1, 1}; strictly inside (-1, 1)."""
    return lambda t, p: -labels[t - 1] / (1.0 + math.exp(labels[t - 1] * p))


def absolute_slope(targets):
    """nabla_t of |p - y|; 0 where p = y."""
    return lambda t, p: np.sign(p - targets[t - 1])


GAMES = {
    "algorithm 3": algorithm_3,
    "Kempka": kempka,
    "algorithm 4, max": algorithm_4_max,
    "algorithm 4, span": algorithm_4_ellipsoid,
    "algorithm 4, coordinate": partial(algorithm_4_ellipsoid, start="coordinate"),
    "combined": lambda features, slope, epsilon=1.0: combined(
        features,
        slope,
        [(Algorithm4Coordinate, 30.0 * epsilon), (Algorithm3, 0.3 * epsilon)],
        average=10.0 * epsilon,
    ),
}


def some_features(rng, T, d):
    """Features that span one more dimension every T / (2 d) rounds, in growing and mixed units."""
    features = rng.normal(size=(T, d)) * np.exp(rng.normal(size=(T, 1)))
    for t in range(T):
        features[t, 1 + 2 * d * t // T :] = 0.0
    features[T // 5] = 0.0
    return features


def some_map(rng, d, condition=30.0):
    Q, R = (np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(2))
    return Q @ np.diag(np.geomspace(1.0, condition, d) * rng.uniform(0.1, 10.0)) @ R


def some_slopes(rng, features):
    signal = features @ rng.normal(size=features.shape[1])
    noise = rng.normal(size=len(features))
    labels = np.where(signal + noise > 0, 1.0, -1.0)
    zeros = np.where(rng.uniform(size=len(features)) < 0.3, 0.0, rng.uniform(-1, 1, len(features)))
    return {
        "logistic": logistic_slope(labels),
        "absolute": absolute_slope(signal + 0.1 * noise),
        "many zeros": lambda t, p: zeros[t - 1],
    }


def _check_games(rng, T=40, d=4):
    features = some_features(rng, T, d)
    worst, longest = {}, 0.0
    for kind, slope in some_slopes(rng, features).items():
        for name, game in GAMES.items():
            for epsilon in (1.0, 0.1):
                r = game(features, slope, epsilon)
                leaves = r.learner.leaves()
                longest = max(longest, *(np.max(leaf.dual_norms) for leaf in leaves))
                assert longest <= 1 + 1e-9
                for leaf in leaves:
                    wealth = leaf.bettor.wealth
                    assert math.isclose(wealth, leaf.epsilon - leaf.scaled, rel_tol=1e-9)
                    assert math.isclose(math.log(wealth), leaf.bettor.log_wealth, abs_tol=1e-9)
                wealth = sum(leaf.bettor.wealth - leaf.epsilon for leaf in leaves)
                wealth -= getattr(r.learner, "followed_loss", 0.0)
                assert math.isclose(wealth, -r.slopes @ r.predictions, rel_tol=1e-8, abs_tol=1e-9)
                for u in rng.normal(size=(30, d)) * rng.choice([0.1, 1, 10], size=(30, 1)):
                    ratio = r.regret(u) / r.learner.bound(u)
                    worst[name] = max(worst.get(name, -math.inf), ratio)
                    assert ratio <= 1, (kind, name)
    print(f"largest ||g_t||_(t-1,*): {longest:.12f}")
    print("largest regret / bound:", {k: f"{v:.3f}" for k, v in worst.items()})


def _check_invariance(rng, T=40, d=4):
    features = some_features(rng, T, d)
    invariant = ("algorithm 4, max", "algorithm 4, span")
    differences = {}
    for slope in some_slopes(rng, features).values():
        for name, game in GAMES.items():
            diagonal = np.diag(10.0 ** rng.uniform(-3, 3, d) * rng.choice([-1, 1], d))
            maps = [diagonal, *([some_map(rng, d)] if name in invariant else [])]
            before = game(features, slope).predictions
            for M in maps:
                after = game(features @ M.T, slope).predictions
                error = np.max(np.abs(after - before) / (1.0 + np.abs(before)))
                differences[name] = max(differences.get(name, 0.0), error)
                assert error <= 1e-6, (name, error)
    print("largest change of a prediction:", {k: f"{v:.0e}" for k, v in differences.items()})


def _check_one_dimension(rng, T=40):
    """alg:scale is Kempka's algorithm there; with |f_t| = 1, alg:diagscale is alg:1dred."""
    features = rng.normal(size=(T, 1)) * np.exp(rng.normal(size=(T, 1)))
    for slope in some_slopes(rng, features).values():
        a, b = kempka(features, slope), algorithm_4_max(features, slope)
        np.testing.assert_allclose(a.predictions, b.predictions, rtol=1e-9, atol=1e-9)
        a, b = (algorithm_4_ellipsoid(features, slope, start=s) for s in ("span", "coordinate"))
        np.testing.assert_allclose(a.predictions, b.predictions, rtol=1e-9, atol=1e-9)
        a = algorithm_3(np.sign(features), slope)
        b = play(Lp(1), a.gradients, np.zeros(1))
        np.testing.assert_allclose(a.points, b.points[:-1], rtol=1e-12, atol=1e-12)


def _check_covers(rng, d=4):
    """q = 1 after a feature was covered, the norms increase, and A^+ is the pseudo-inverse."""
    for start in ("span", "coordinate"):
        norm = Ellipsoid(d, start)
        for f in some_features(rng, 40, d):
            x, before = rng.normal(size=(20, d)), norm
            norm = norm.with_feature(f)
            assert norm.dual_norm(f) <= 1 + 1e-9
            assert all(norm.norm(y) >= before.norm(y) - 1e-9 for y in x)
            pseudo_inverse = np.linalg.pinv(norm.rows.T @ norm.rows, rcond=1e-9)
            theta = norm.rows.T @ rng.normal(size=len(norm.rows))
            np.testing.assert_allclose(norm.primal_vector(theta), pseudo_inverse @ theta, atol=1e-6)
            norm = norm.with_gradient(rng.uniform(-1, 1) * f)


def _check_max_norm(rng, d=3):
    """The dual vector against directions tried at random."""
    norm = MaxNorm(d)
    for f in rng.normal(size=(8, d)):
        norm = norm.with_feature(f)
        theta = norm.features.T @ rng.normal(size=len(norm.features))
        x, size = norm.primal_vector(theta), norm.dual_norm(theta)
        assert math.isclose(norm.norm(x), size, rel_tol=1e-7)
        for y in np.vstack([x + 1e-3 * rng.normal(size=(500, d)), rng.normal(size=(500, d))]):
            assert theta @ y <= size * norm.norm(y) + 1e-9 * size
        norm = norm.with_gradient(rng.uniform(-1, 1) * f)
    # Many maximizers: x_1 is determined and -1/6 <= x_2 / x_1 <= 0; least squares wants less.
    features = np.array([[1.0, 0.0], *20 * [[1.0, 1.0]], [0.5, -3.0]])
    for M in (np.eye(2), some_map(rng, 2)):
        norm = MaxNorm(2, features @ M.T, features[:1] @ M.T)
        x = M.T @ norm.primal_vector(M[:, 0])
        np.testing.assert_allclose(x, [1 / 3, -1 / 18], rtol=1e-7)


def _print_counterexample():
    """1/2 ||.||^2 of alg:scale is not strongly convex with respect to ||.||, for any sigma."""
    e = np.eye(2)
    norm = MaxNorm(2, features=e, gradients=e[:1])
    x, y = e[0], e[0] + 0.5 * e[1]
    middle = (norm.norm(x) ** 2 + norm.norm(y) ** 2) / 4 - norm.norm((x + y) / 2) ** 2 / 2
    needed = norm.norm(x - y) ** 2 / 8
    print(f"counterexample: midpoint gap {middle} of 1/2 ||.||^2, ||x - y||^2 / 8 = {needed}")
    assert middle == 0 < needed


if __name__ == "__main__":
    _print_counterexample()
    for seed in range(2):
        generator = np.random.default_rng(seed)
        _check_max_norm(generator)
        _check_covers(generator)
        _check_one_dimension(generator)
        _check_games(generator)
        _check_invariance(generator)
