"""The version, read by the build and compared between ranks."""

VERSION = "0.1.0"
