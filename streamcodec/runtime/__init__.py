"""What runs a service, whoever speaks HTTP: time, observers, options. Everything but the connections."""
