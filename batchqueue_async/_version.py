"""The one place that says the version; the build reads it here."""

__version__ = "0.2.0"
