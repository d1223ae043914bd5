"""What a caller declares: frozen values and protocols, without an event loop."""
