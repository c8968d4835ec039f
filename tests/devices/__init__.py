"""Devices: what a server takes on a small machine, measured in processes of their own."""
