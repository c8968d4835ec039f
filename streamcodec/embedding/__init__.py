"""What the adapters share: requests that come through the server of a framework."""
