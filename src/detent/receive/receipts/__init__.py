"""Receipts: which fires an app has received, in its own store."""
