"""What a page and a terminal are drawn with: numbers, tables, charts, colours."""
