"""The V2 decoder and encoder inside KServe's ModelServer, and arrays for its clients. It needs KServe installed."""
