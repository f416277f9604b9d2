"""The norms that come with the package, one a file."""

from optax_varynorm.norm_library.block_diagonal import block_diagonal_norm
from optax_varynorm.norm_library.custom import custom_norm
from optax_varynorm.norm_library.diagonal import diagonal_norm
from optax_varynorm.norm_library.feature_cover import feature_cover_norm
from optax_varynorm.norm_library.feature_size import feature_size_norm
from optax_varynorm.norm_library.full_matrix import full_matrix_norm
from optax_varynorm.norm_library.full_matrix_root import full_matrix_root_norm
from optax_varynorm.norm_library.group import group_norm
from optax_varynorm.norm_library.growing_inverse import GrowingInverse
from optax_varynorm.norm_library.lp import lp_norm
from optax_varynorm.norm_library.max_feature import max_feature_norm
from optax_varynorm.norm_library.scaled import scaled_norm
from optax_varynorm.norm_library.sum_of_norms import sum_of_norms

__all__ = [
    "GrowingInverse",
    "block_diagonal_norm",
    "custom_norm",
    "diagonal_norm",
    "feature_cover_norm",
    "feature_size_norm",
    "full_matrix_norm",
    "full_matrix_root_norm",
    "group_norm",
    "lp_norm",
    "max_feature_norm",
    "scaled_norm",
    "sum_of_norms",
]
