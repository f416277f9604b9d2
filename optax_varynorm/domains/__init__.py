"""Convex sets, and the projection onto them in the norm of the round."""

from optax_varynorm.domains.ball import l2_ball
from optax_varynorm.domains.domain import Domain, Projection, whole_space
from optax_varynorm.domains.flat import affine, half_space, hyperplane

__all__ = [
    "Domain",
    "Projection",
    "affine",
    "half_space",
    "hyperplane",
    "l2_ball",
    "whole_space",
]
