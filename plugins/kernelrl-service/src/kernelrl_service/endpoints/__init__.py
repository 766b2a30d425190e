"""The endpoints of a server, one module per subject: each has `endpoints(server)`."""
