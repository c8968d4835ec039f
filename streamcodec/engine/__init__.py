"""The engine: fills the tensors of one message, of any format, straight into memory that the caller chooses."""
