"""Wiring: from a NetParameter to layers and blobs, and running them."""

from .net import Net

__all__ = ["Net"]
