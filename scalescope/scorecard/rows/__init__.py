"""One row a file: `measure(machine)` yields its figures."""
