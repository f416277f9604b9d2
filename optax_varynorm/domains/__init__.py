"""Convex sets, and the projection onto them in the norm of the round."""

from optax_varynorm.domains.ball import ellipsoid, l2_ball
from optax_varynorm.domains.box import box, linf_ball, non_negative
from optax_varynorm.domains.constraint import Constraint
from optax_varynorm.domains.domain import Domain, Projection, whole_space
from optax_varynorm.domains.flat import affine, half_space, hyperplane
from optax_varynorm.domains.from_euclidean import from_euclidean
from optax_varynorm.domains.intersection import intersection
from optax_varynorm.domains.polyhedron import polyhedron
from optax_varynorm.domains.product import product
from optax_varynorm.domains.simplex import l1_ball, simplex

__all__ = [
    "Constraint",
    "Domain",
    "Projection",
    "affine",
    "box",
    "ellipsoid",
    "from_euclidean",
    "half_space",
    "hyperplane",
    "intersection",
    "l1_ball",
    "l2_ball",
    "linf_ball",
    "non_negative",
    "polyhedron",
    "product",
    "simplex",
    "whole_space",
]
