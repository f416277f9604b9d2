"""The features of a linear model, as extra arguments of ``update``."""

import jax
import jax.numpy as jnp

from optax_varynorm import _precision


def require_features(extra_args, params):
    """Both as trees like the parameters, in the same dtype."""
    features, next_features = map(extra_args.get, ("features", "next_features"))
    if features is None or next_features is None:
        raise ValueError(
            "This norm learns from the features of a linear model: call `update(gradient, state, "
            "params, features=..., next_features=...)` with this example's and the next one's "
            "(zeros after the last), or let `vn.predict_then_update` do it."
        )
    shapes = jax.tree.map(jnp.shape, params)
    for tree in (features, next_features):
        if jax.tree.map(jnp.shape, tree) != shapes:
            raise ValueError(
                f"Features must have the shape of the parameters, {shapes}, not "
                f"{jax.tree.map(jnp.shape, tree)}: one weight a feature."
            )
    dtype = _precision.working_dtype(params)
    return tuple(_precision.cast(tree, dtype) for tree in (features, next_features))
