"""What our own measuring annotates in traces, by name: both halves know it from here."""

#: The host fetches the next batch.
LOADING = "scalescope:data"
