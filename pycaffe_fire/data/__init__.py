"""Data in: databases, records, transforms, the global sample order and the prefetching loader."""
