"""Who talks to whom: leaves, the reduction tree over them, and communicators between ranks."""
