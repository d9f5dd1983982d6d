"""What is measured of each step, on its way into rows and traces."""
