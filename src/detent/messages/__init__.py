"""Messages and envelopes: what is sent, signed and masked. Pure."""
