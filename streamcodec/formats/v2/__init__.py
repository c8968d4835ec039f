"""V2: the Binary Tensor Data Extension of the V2 inference protocol."""
