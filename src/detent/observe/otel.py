"""What traces and metrics share of OpenTelemetry: the resource, and exporters that report a dead collector.

The usual `OTEL_…` variables configure them.  The log messages of the SDK are suppressed; instead, the first
export of an outage that fails is one warning event.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from detent.errors import UsageError

QUEUE_FULL = "Queue full"  # what the SDK logs when it drops spans
MESSAGES_MAX = 10  # of the SDK that are kept
FLUSH_S = 5  # for one export, unless a variable says otherwise
Unsent = Callable[[str], object]  # called with the error of the first failed export of an outage


def need(extra: str, option: str, package: str) -> UsageError:
    return UsageError(f"{option} needs {package}: pip install 'detent[{extra}]'")


def resource_of(env: Mapping[str, str]) -> Any:
    from opentelemetry.sdk.resources import Resource

    return Resource.create({} if env.get("OTEL_SERVICE_NAME") else {"service.name": "detent"})


def timeout_of(env: Mapping[str, str], signal: str) -> dict[str, Any]:
    """Return the timeout of an OTLP exporter, unless a variable says it.  `signal`: TRACES or METRICS."""
    variables = ("OTEL_EXPORTER_OTLP_TIMEOUT", f"OTEL_EXPORTER_OTLP_{signal}_TIMEOUT")
    return {} if any(name in env for name in variables) else {"timeout": FLUSH_S}


def make_exporter(base: type[Any], unsent: Unsent, **settings: Any) -> Any:
    """Make an exporter of this class that calls `unsent`."""
    messages = _collect_messages()

    class Reporting(base):  # type: ignore[misc]
        is_away = False

        def export(self, *args: Any, **named: Any) -> Any:
            dropped = [text for text in messages if text.startswith(QUEUE_FULL)]
            messages.clear()
            try:
                result = super().export(*args, **named)
                said = messages or ["the collector rejected them"]
                error = "".join(dropped[-1:]) if result.name == "SUCCESS" else said[0]
            except Exception as raised:
                result, error = None, f"{type(raised).__name__}: {raised}"
            if error and not self.is_away:
                unsent(error)
            self.is_away = bool(error)
            return result

    return Reporting(**settings)


def _collect_messages() -> list[str]:
    """Collect the log messages of the SDK instead of printing them."""
    messages: list[str] = []

    class Collected(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())
            del messages[:-MESSAGES_MAX]

    log = logging.getLogger("opentelemetry")
    log.addHandler(Collected(logging.WARNING))
    log.propagate = False
    return messages


def shut_down(close: Callable[[], object]) -> None:
    """Send the rest, for a few seconds at most: not every version of the SDK has a limit for that."""
    thread = threading.Thread(target=close, daemon=True)
    thread.start()
    thread.join(FLUSH_S + 1.0)
