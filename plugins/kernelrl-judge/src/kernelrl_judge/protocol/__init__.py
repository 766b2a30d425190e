"""The protocol of judge and runner: messages, values as bytes, the layout of shared memory, and requests to fork."""
