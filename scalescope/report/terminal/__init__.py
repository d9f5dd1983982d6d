"""What a terminal shows: the verdict in a sentence, then its figures. Plain lines where nobody looks at colours."""
