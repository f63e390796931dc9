"""The receiver as a Flask blueprint: jobs run in the app's context, like views."""

from typing import Any

from detent.receive.receiver import MANIFEST_PATH, Receiver
from detent.receive.wsgi import incoming_of

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


def blueprint(receiver: Receiver) -> Any:
    from flask import Blueprint, Response, request

    made = Blueprint("detent_receive", __name__)

    def answer(below: str = MANIFEST_PATH) -> Any:
        reply = receiver.receive(incoming_of(request.environ, below, _read(request, receiver.body_max)))
        return Response(reply.body, reply.status, headers=reply.all_headers())

    def receive_fire(rest: str) -> Any:
        return answer(f"{receiver.prefix}/{rest}")

    made.add_url_rule(MANIFEST_PATH, "serve_manifest", answer, methods=METHODS)
    made.add_url_rule(f"{receiver.prefix}/<path:rest>", view_func=receive_fire, methods=METHODS)
    return made


def _read(request: Any, most: int) -> bytes | None:
    if (request.content_length or 0) > most:
        return None
    # A hook of the app may have read the stream already: then it is empty, and Flask has the body cached.
    body: bytes = request.stream.read(most + 1) or request.get_data()
    return body if len(body) <= most else None
