"""The commands; argument parsing only, the work is done in the other rooms."""
