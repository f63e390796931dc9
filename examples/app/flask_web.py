"""The jobs of the shop within a Flask app: gunicorn -w 4 flask_web:web (from this folder)."""

from flask import Flask
from shop import app

web = Flask(__name__)
app.start()  # every worker process is a node; each instant fires once


@web.get("/")
def home() -> str:
    return "a web app like any other"
