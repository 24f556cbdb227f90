"""Running ops and models for real, on a GPU or on the CPU.

Importing this package imports PyTorch.
"""
