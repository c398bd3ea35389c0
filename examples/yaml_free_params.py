"""param_str as a Python dictionary, which is how most layers had it."""

import ast


def read(param_str):
    return ast.literal_eval(param_str)
