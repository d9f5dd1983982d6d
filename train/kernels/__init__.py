"""Kernels of our own, each where a profile showed that a step lost time to a general one: Triton, so CUDA and ROCm.

Their names are what a trace shows, and what `scaling` tells their kind by.
"""
