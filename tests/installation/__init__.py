"""Tests of how the package is installed and what came with it."""
