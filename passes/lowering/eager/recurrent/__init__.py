"""Kernels of recurrent layers, and of losses over steps."""
