"""The options `--metrics` and `--otel` of `detent run` and `detent worker`."""

import argparse

from detent.observe.telemetry import ADDRESS, TelemetryOptions, split_address
from detent.observe.traces import OTLP, check_target


def add_telemetry_options(parser: argparse.ArgumentParser) -> None:
    served = f"serve /metrics, /healthz and /readyz there (default: {ADDRESS}; needs detent[prometheus])"
    parser.add_argument("--metrics", nargs="?", const=ADDRESS, default="", metavar="HOST:PORT", help=served)
    sent = "export traces to a collector, or as JSON lines to a file (needs detent[otel])"
    parser.add_argument("--otel", nargs="?", const=OTLP, default="", metavar="file:PATH", help=sent)


def telemetry_of(args: argparse.Namespace) -> TelemetryOptions:
    if args.metrics:
        split_address(args.metrics)
    if args.otel:
        check_target(args.otel)
    return TelemetryOptions(args.metrics, args.otel)
