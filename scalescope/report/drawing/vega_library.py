"""The script that draws a page's charts: vl-convert's bundle of Vega, Vega-Lite and Vega-Embed.

Bundling takes seconds of a core, and gives the same for one version of vl-convert: it is kept in the user's cache.
"""

import hashlib
import os
import re
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from scalescope.records.files import write_atomic


def vega_library() -> str:
    """Return the script as it can stand inside a <script> element. Needs vl-convert where the cache has none."""
    library = _bundle().replace("\r\n", "\n").replace("\r", "\n")
    # no address stays in the page but the names of XML namespaces, which are not fetched
    library = library.replace("https://vega.github.io/editor/", "about:blank")
    return re.sub(r"</(script)", r"<\\/\1", library, flags=re.I).replace("<!--", r"<\!--")


def _bundle() -> str:
    """Return the bundle, from the cache if it is whole there; a home that takes no file costs the seconds."""
    try:
        kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scalescope"
        name = f"vega-{version('vl-convert-python')}"
    except (RuntimeError, PackageNotFoundError):  # a user without a home, a package without its name
        return _made()
    with suppress(OSError):
        for path in kept.glob(f"{name}-*.js"):
            script = path.read_bytes()
            if path.name == _file_name(name, script):
                return script.decode()
    script = _made().encode()
    with suppress(OSError):
        write_atomic(kept / _file_name(name, script), script)
    return script.decode()


def _file_name(name: str, script: bytes) -> str:
    """Return a name that says what is in the file, so that a damaged one is known."""
    return f"{name}-{hashlib.sha256(script).hexdigest()[:32]}.js"


def _made() -> str:
    import vl_convert

    made: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stub wrongly asks for an argument
    return made
