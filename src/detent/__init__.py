"""A scheduler for jobs that must run once: not zero times, not twice, not on top of each other."""

TYPE_CHECKING = False  # typing's own would cost every start of ours what typing costs
if TYPE_CHECKING:
    from detent.runners.call_fire import Fire

__all__ = ["Fire", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Late, as most of what imports this needs only the version."""
    if name == "Fire":
        from detent.runners.call_fire import Fire

        return Fire
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
