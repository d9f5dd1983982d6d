"""Chromium without a network: the page as a reader gets it, and what its console says."""

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None,
    reason="NOT TESTED: there is no chromium here, so nobody saw this page drawn (apt install chromium)",
)

#: Written into a copy of the page, whose policy must allow it: what only a running page can tell.
_PROBE = """<script>addEventListener("load", () => setTimeout(() => {
  const root = document.documentElement;
  root.dataset.overflow = root.scrollWidth - root.clientWidth;
  root.dataset.dark = getComputedStyle(document.body).backgroundColor;
}, 3000));</script>"""


@dataclass(frozen=True)
class Seen:
    dom: str
    console: list[str]

    def tags(self) -> set[str]:
        """Return the names of all elements."""
        found: set[str] = set()
        reader = HTMLParser()
        reader.handle_starttag = lambda tag, attrs: found.add(tag)  # type: ignore[method-assign]
        reader.feed(self.dom)
        return found

    def marks(self) -> dict[str, int]:
        """Return the drawn shapes of each chart, axes and grid not counted."""
        places = re.split(r'data-chart="([^"]+)"', self.dom)
        found = {}
        for name, place in zip(places[1::2], places[2::2], strict=True):
            groups = re.findall(r'<g class="mark-(?:rect|line|symbol|rule) role-mark[^"]*"[^>]*>(.*?)</g>', place, re.S)
            found[name] = sum(len(re.findall(r"<(?:path|line)\b", group)) for group in groups)
        return found


def open_page(page: Path, *, width: int = 1280, dark: bool = False, probe: bool = False, act: str = "") -> Seen:
    """Open a page in headless Chromium with every name unresolvable; return its DOM once drawn, and its console.

    `act`: a script that plays the reader, run in a copy once the page is drawn.
    """
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory() as folder:
        if probe or act:
            text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
            page = Path(folder) / "probed.html"
            played = (
                f'<script>addEventListener("load", () => setTimeout(() => {{{act}}}, 2000));</script>' if act else ""
            )
            page.write_text(f"{_PROBE}{played}".join(text.rsplit("</body>", 1)) + "</body>")
        done = subprocess.run(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile",
             "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--v=0",
             "--virtual-time-budget=12000", f"--window-size={width},1400",
             *(["--blink-settings=preferredColorScheme=0"] if dark else []), "--dump-dom", f"file://{page}"],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
    return Seen(done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line])
