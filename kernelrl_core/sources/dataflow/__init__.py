"""Data flow of a PyTorch reference: the graph of operators between the inputs and the result of `forward`."""
