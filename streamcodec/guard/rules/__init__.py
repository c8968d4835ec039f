"""What may pass, and what is checked on its way."""
