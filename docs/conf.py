"""The documentation site: `make docs` builds it offline, and pages need no network to be read."""

import pathlib
import sys

import optax_varynorm

sys.path.insert(0, str(pathlib.Path(__file__).parent / "extensions"))

project = "optax_varynorm"
author = "The optax_varynorm authors"
release = version = optax_varynorm.__version__
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "myst_parser",
    "attributes_first",
    "mathml",
    "colab_pages",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["extensions"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_math_renderer = "mathml"

# Attributes as a list of fields; as objects of their own they would be documented twice.
napoleon_use_ivar = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
add_module_names = False

html_theme = "furo"
html_title = f"optax_varynorm {release}"
