"""Python calls: in a warm child process or in the node itself."""
