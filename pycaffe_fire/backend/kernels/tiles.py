"""The width of vectors of channels."""

LANES = 8  # channels in a vector: divides the blocks of every layout that oneDNN likes
