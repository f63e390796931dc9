"""The policy of a fire, as pure functions.  Start with `planning`, `lanes` and `settling`, in this order."""
