"""What the drivers of SQL databases share: columns, reads, writes and queries."""
