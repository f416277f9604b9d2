"""Linear models side by side: these optimizers, Optax's, and those of other libraries."""
