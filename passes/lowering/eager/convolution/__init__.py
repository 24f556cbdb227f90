"""Kernels of convolutions, and which of cuDNN's is taken."""
