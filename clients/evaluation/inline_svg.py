"""Figures as SVG inside a page: colours that follow the page, ids that meet no others.

A figure is drawn once, for white paper. Inside a page its colours become variables of the
page's style, so that the same figure reads in light, in dark and printed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from clients.evaluation import figures

VARIABLES: Final[Mapping[str, str]] = {
    figures.INK: "--figure-ink",
    figures.SOFT: "--figure-soft",
    figures.FAINT: "--figure-faint",
    figures.GRID: "--figure-grid",
    figures.PAPER: "--figure-paper",
    figures.BLUE: "--figure-blue",
    figures.VERMILION: "--figure-vermilion",
    figures.GREEN: "--figure-green",
    figures.PURPLE: "--figure-purple",
}
"""Colour of a figure -> variable of the page. Other colours read on any paper."""

_COLOUR: Final = re.compile(r"#[0-9a-f]{6}\b", re.IGNORECASE)
_FONT: Final = "DejaVu Sans"
_FONTS: Final = "'DejaVu Sans', Verdana, sans-serif"


def inline(svg: str, name: str, label: str) -> str:
    """The `<svg>` element of a figure, to stand in an HTML page.

    Arguments:
        svg: A whole SVG document, as `figures.to_svg` makes it.
        name: Made of letters, digits and `_`; unique in the page. Ids begin with it.
        label: What a reader who does not see the figure is told; no markup.

    Example:
        >>> inline('<?xml?><svg id="a" viewBox="0 0 9 9"><use href="#a"/></svg>', "fig", "Nine")
        '<svg role="img" aria-label="Nine" id="fig-a" viewBox="0 0 9 9"><use href="#fig-a"/></svg>'
    """
    element = svg[svg.index("<svg") :].strip()
    # Nothing that a page would show, or load: the document's own notes and sizes.
    element = re.sub(r"<metadata>.*?</metadata>\s*", "", element, flags=re.DOTALL)
    element = re.sub(r"<!--.*?-->\s*", "", element, flags=re.DOTALL)
    element = element.replace(f"'{_FONT}'", _FONTS).replace(f"{_FONT};", f"{_FONTS};")
    element = re.sub(r'\bid="', f'id="{name}-', element)
    element = re.sub(r'href="#', f'href="#{name}-', element)
    element = element.replace("url(#", f"url(#{name}-")
    by_lower = {colour.lower(): f"var({variable})" for colour, variable in VARIABLES.items()}
    element = re.sub(
        r'style="[^"]*"',
        lambda style: _COLOUR.sub(lambda one: by_lower.get(one[0].lower(), one[0]), style[0]),
        element,
    )
    label = label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return element.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def width_inches(svg: str) -> float:
    """How wide a figure is meant to be.

    Example:
        >>> width_inches('<svg width="504pt" height="216pt">')
        7.0
    """
    found = re.search(r'<svg[^>]*\bwidth="([\d.]+)pt"', svg)
    if found is None:
        raise ValueError("The SVG has no width in points. Expected one that matplotlib wrote.")
    return float(found[1]) / 72
