"""What is offered: models, their registry, metadata, statistics, and which of them are quick."""
