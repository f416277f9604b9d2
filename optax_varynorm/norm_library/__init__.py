"""The norms that come with the package, one a file."""

from optax_varynorm.norm_library.full_matrix import FullMatrixNormState, full_matrix_norm
from optax_varynorm.norm_library.full_matrix_root import (
    FullMatrixRootNormState,
    full_matrix_root_norm,
)
from optax_varynorm.norm_library.lp import lp_norm

__all__ = [
    "FullMatrixNormState",
    "FullMatrixRootNormState",
    "full_matrix_norm",
    "full_matrix_root_norm",
    "lp_norm",
]
