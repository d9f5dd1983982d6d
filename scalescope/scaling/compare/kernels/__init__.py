"""The kernels of two steps side by side, on whatever platform."""
