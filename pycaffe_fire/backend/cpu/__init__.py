"""The CPU backend's own kernels: C sources in native/, and the plans that call them."""
