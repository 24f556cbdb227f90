"""Kernels of scaled dot-product attention and of its gradients."""
