"""How a node processes queue messages: in batches, in children or in its own process."""
