"""Grpc: a placeholder for the client that this package does not have; importing it says where it is."""

raise ImportError(
    "streamcodec speaks HTTP only. The client for gRPC is in the official package: "
    "pip install 'tritonclient[grpc]', and import tritonclient.grpc"
)
