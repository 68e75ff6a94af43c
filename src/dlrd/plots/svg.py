"""The panels of a fit as SVG for a web page, whose colours they take."""

import html
import io
import re
from typing import NamedTuple

from matplotlib.figure import Figure

from dlrd.fitting.result import Fit
from dlrd.plots.panels import fit_panels
from dlrd.plots.style import GRID, INK, LINE, MARK, MUTED, house_style

CSS_COLORS = {INK: "--ink", MUTED: "--muted", GRID: "--grid", LINE: "--line", MARK: "--mark"}
"""The variables that the page's style sheet must define."""


class PanelImage(NamedTuple):
    """A panel as an `<svg>` element, to be placed right inside HTML."""

    title: str
    svg: str


def panel_images(fit: Fit) -> list[PanelImage]:
    """One image a panel, so that a narrow page can stack them in readable size.

    Args:
        fit: what `dlrd.fit` returned.

    Returns:
        The images. Colours are CSS variables (`CSS_COLORS`), widths are those of the element around.
    """
    images = []
    for i, panel in enumerate(fit_panels(fit)):
        with house_style(**{"svg.hashsalt": "dlrd"}):
            figure = Figure(figsize=(4.8, 3.1), layout="constrained")
            panel.draw(figure.subplots())
            written = io.StringIO()
            figure.savefig(written, format="svg", transparent=True)
        images.append(PanelImage(panel.title, _for_page(written.getvalue(), f"panel{i}-", panel.title)))
    return images


def _for_page(document: str, prefix: str, label: str) -> str:
    """The `<svg>` element of a document, without what a page has no use for, with ids of its own."""
    svg = document[document.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    view_box = re.search(r'viewBox="[^"]*"', svg)
    assert view_box is not None
    svg = re.sub(
        r"<svg[^>]*>", f'<svg {view_box[0]} role="img" aria-label="{html.escape(label)}">', svg, count=1
    )
    svg = svg.replace("xlink:href", "href")
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda found: f' id="{prefix}{found[1]}"' if found[1] in used else "", svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{prefix}", svg)
    for color, variable in CSS_COLORS.items():
        svg = svg.replace(color, f"var({variable})")
    return re.sub(r"\s*\n\s*", "\n", svg).strip()
