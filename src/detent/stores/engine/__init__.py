"""The engine: all verbs of a store, once, on top of a driver that keeps records and knows no rule."""
