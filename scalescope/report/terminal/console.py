"""The console that all of this prints to: without what a terminal would obey, plain where nobody looks at colours."""

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from scalescope.records.console import clean, styled_stream

_PLAIN_WIDTH = 10_000  # a log file has no width


class _Console(Console):
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield what is shown, cleaned of what a terminal would obey; rich's own control segments stay."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=clean(segment.text))

    def on_broken_pipe(self) -> None:
        """Leave it to the front door that the reader has gone: rich would end with 1, which is a failed check."""
        raise BrokenPipeError


def make_console() -> Console:
    """Return the console that all of this prints to: colours on a terminal only, and not where NO_COLOR is set."""
    console = _Console(file=styled_stream(), highlight=False)
    return console if console.is_terminal else _Console(file=styled_stream(), highlight=False, width=_PLAIN_WIDTH)


def print_line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=not console.is_terminal)
