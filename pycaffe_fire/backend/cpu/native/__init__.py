"""The C sources of the CPU kernels, their build, and the libraries that it makes."""
