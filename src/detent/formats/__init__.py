"""The formats of other schedulers: `convert.py` reads them, `render.py` writes them. Pure."""
