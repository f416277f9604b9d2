"""How often something was not as it should be, from a state."""

import jax
import jax.numpy as jnp
import optax

COUNTS = (
    "skipped_rounds",
    "clipped_rounds",
    "inaccurate_projections",
    "coins_out_of_range",
    "wealth_saturations",
    "untracked_rounds",
)


def counts(state: optax.OptState) -> dict[str, jax.Array]:
    """The counts of a state, wherever they are in it; where learners count alike, the largest.

    ``optax.tree.get(state, "skipped_rounds")`` is for states with one learner. A combination has as
    many counts as learners, ``per_block`` one a block, a sweep one a run: of all that, the most.
    The layers' own docstrings say what each of them counts.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> optimizer = vn.varynorm()
    >>> state = optimizer.init(jnp.zeros(2))
    >>> _, state = optimizer.update(jnp.array([jnp.nan, 1.0]), state, jnp.zeros(2))
    >>> int(vn.counts(state)["skipped_rounds"])
    1
    """
    found = {name: optax.tree.get_all_with_path(state, name) for name in COUNTS}
    return {
        name: jnp.max(jnp.stack([jnp.max(count, initial=0) for _, count in each]))
        for name, each in found.items()
        if each
    }
