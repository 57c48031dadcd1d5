"""Mathematics as MathML: rendered by the browser itself, without a script or a network."""

from docutils import nodes
from latex2mathml.converter import convert


def _inline(self, node: nodes.math) -> None:
    self.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _display(self, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math">{convert(node.astext().strip(), display="block")}</div>')
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    return {"version": "1", "parallel_read_safe": True}
