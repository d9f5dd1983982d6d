"""Two measurements side by side, shown: in sentences, on the terminal, as Markdown, as a page."""
