"""A model of a store: short, slow and independent of the engine.  Tests compare every store with it."""
