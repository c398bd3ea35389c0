"""Compiled loops for what oneDNN lacks on the CPU's hot path; flat arrays in, flat arrays out."""
