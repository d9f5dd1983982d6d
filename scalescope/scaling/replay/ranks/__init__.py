"""What a rank does beside the others: launches in common, gaps and inflation that one alone has."""
