"""How long before its claim expires a node stops trusting it.

Work is gone when the trust ends, so that no other node can be granted the claim while it runs.
"""

STEP_S = 0.5  # a smaller step of a server's clock cannot be told from a slow network
MARGIN_MIN_S = 2 * STEP_S  # a step that is not noticed, and time for the work to be gone
CLAIM_MIN_S = 2  # a shorter claim would not be trusted for long enough to be renewed


def margin_s(ttl_s: float) -> float:
    """The time between the end of trust in a claim and the earliest moment at which it may expire."""
    return max(MARGIN_MIN_S, ttl_s / 10)
