"""fire_board: a live page over run folders. It reads them, and never writes to them.

The server answers from an index of the logs; nets run in worker processes of their own. What a
browser may ask for, and who may ask, is decided in access.py alone.
"""
