"""Cuda shared memory: a placeholder for the functions that need CUDA; importing it says where they are.

The client can register, list and unregister regions that others have made.
"""

raise ImportError(
    "streamcodec does not use CUDA. The functions for its shared memory are in the official package: "
    "pip install 'tritonclient[cuda]', and import tritonclient.utils.cuda_shared_memory. Handles that they make "
    "can be registered with the clients of streamcodec.tritonclient.http"
)
