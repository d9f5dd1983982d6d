"""Two measurements of anything, side by side: is the difference real, how large is it, and where does it lie?"""
