"""The oracle of random nets: one net, run in several ways that must agree.

A random net with random actions runs as users run it, layer by layer without any fusion, and on the
NumPy backend. Every blob, gradient, running average and array that the caller holds must agree up
to rounding, which a float64 run bounds. What differs is reduced to a minimal prototxt.

    python -m tests.fuzz.nets --nets 10000            # findings are written to a folder
    python -m tests.fuzz.nets --guards --nets 2000    # with guard zones around buffers
    python -m tests.fuzz.nets --isa avx2              # on a lower instruction set
    python -m tests.fuzz.nets case.prototxt           # run a finding again
"""
