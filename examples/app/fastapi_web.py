"""The jobs of the shop within a FastAPI app: uvicorn --workers 4 fastapi_web:web (from this folder)."""

from fastapi import FastAPI
from shop import app

web = FastAPI(lifespan=app.lifespan)


@web.get("/")
async def home() -> str:
    return "a web app like any other"
