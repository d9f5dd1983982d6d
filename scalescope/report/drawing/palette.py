"""Every colour of the page and its charts, by name: one for a light page, one for a dark one.

Charts name colours as CSS variables (`var(--ink)`), which SVG attributes resolve, so that one drawing is right in
light, in dark and on paper. Where there is no page around it (a PNG), `resolved` puts the light ones in.
"""

import re

from scalescope.report.drawing.parts import ALL, INFLATION, MORE_WORK

_BASE = {
    "--page": ("#f6f7f9", "#14171c"),
    "--surface": ("#ffffff", "#1c2027"),
    "--sunken": ("#f0f2f5", "#252a33"),
    "--line": ("#dfe3e8", "#333a45"),
    "--grid": ("#e9ecf0", "#2b313b"),
    "--ink": ("#1b2330", "#e6e9ee"),
    "--muted": ("#5b6675", "#9aa5b4"),
    "--good": ("#2f7d52", "#69b98c"),
    "--fair": ("#a3700f", "#d9ac55"),
    "--poor": ("#b23c38", "#e58a83"),
    "--unknown": ("#5b6675", "#9aa5b4"),
    "--ideal": ("#8a94a3", "#7d8795"),
    "--heat": ("#c2504c", "#e27d77"),
    "--c1": ("#1f7a70", "#5eb5ab"),
    "--c2": ("#b5652a", "#e0a06a"),
    "--c3": ("#6b54b8", "#a995e0"),
    "--c4": ("#b0467f", "#dd8bb5"),
    "--c5": ("#63802b", "#a9c46c"),
    "--c6": ("#2b7bab", "#6fb3d9"),
}
COLOURS = _BASE | {part.variable: (part.light, part.dark) for part in (*ALL, INFLATION, MORE_WORK)}

_CATEGORIES = 6
_VARIABLE = re.compile(r"var\((--[a-z0-9-]+)\)")


def category(index: int) -> str:
    """Return the colour of the index-th of several things of one kind."""
    return f"var(--c{index % _CATEGORIES + 1})"


def stylesheet() -> str:
    """Return the variables as CSS: light on a light screen and on paper, dark on a dark screen."""
    light = "".join(f"{name}:{pair[0]};" for name, pair in COLOURS.items())
    dark = "".join(f"{name}:{pair[1]};" for name, pair in COLOURS.items())
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def resolved(text: str) -> str:
    """Return a text with the light colours in place of the variables."""
    return _VARIABLE.sub(lambda match: COLOURS[match[1]][0], text)
