"""Formulas as MathML, which browsers render without a script: nothing is fetched to read a page."""

import re

from docutils import nodes
from latex2mathml import converter
from sphinx.util import logging

logger = logging.getLogger(__name__)

# What latex2mathml does not know, in words that it does.
KNOWN = ((r"\\arg\\min", r"\\operatorname*{argmin}"), (r"\\[bB]ig\\(?=[lr]angle)", r"\\"))


def render(node: nodes.Node, display: str) -> str:
    latex = node.astext()
    for unknown, known in KNOWN:
        latex = re.sub(unknown, known, latex)
    formula = converter.convert(latex, display=display)
    if "\\" in formula:  # and prints as it is
        logger.warning("A formula has unknown LaTeX: %s", node.astext(), location=node)
    return formula


def visit_inline(self, node):
    self.body.append(render(node, "inline"))
    raise nodes.SkipNode


def visit_block(self, node):
    self.body.append(f'<div class="formula">{render(node, "block")}</div>\n')
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
