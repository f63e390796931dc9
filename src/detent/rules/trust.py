"""How long a claim is trusted, and when its work is stopped.  Pure.

Trust counts from the moment at which the request was sent.  Work is gone when trust ends, before another
process can get the claim:

    sent ... renewed every `renew_s` ... `term_by`: SIGTERM ... `trusted_by`: SIGKILL ... the claim expires
"""

STEP_S = 0.5  # a smaller step of a server's clock cannot be told from a slow network
MARGIN_MIN_S = 2 * STEP_S  # a step that is not noticed, and time for the work to be gone
CLAIM_MIN_S = 2  # a shorter claim would not be trusted for long enough to be renewed
RENEWALS = 6  # renewals in the lifetime of a claim
AFTER_TIMEOUT_S = 30.0  # a trigger's claim outlives the timeout of its work by this long
TRIGGER_TTL_MAX_S = 90.0  # a store that may have forgotten claims waits for the longest of them
LANE_WAIT_MIN_S = 5.0


def margin_s(ttl_s: float) -> float:
    """The time between the end of trust in a claim and the earliest moment at which it may expire."""
    return max(MARGIN_MIN_S, ttl_s / 10)


def trusted_by(sent: float, ttl_s: float) -> float:
    """The end of trust in a claim that was granted or renewed by a request sent at `sent`."""
    return sent + ttl_s - margin_s(ttl_s)


def renew_s(ttl_s: float) -> float:
    """The time between two renewals."""
    return ttl_s / RENEWALS


def notice_s(ttl_s: float, kill_after_s: float) -> float:
    """The time between SIGTERM and SIGKILL for work whose trust ends."""
    return min(kill_after_s, renew_s(ttl_s))


def term_by(trusted_until: float, ttl_s: float, kill_after_s: float) -> float:
    """When work gets SIGTERM, if its claim is not renewed."""
    return trusted_until - notice_s(ttl_s, kill_after_s)


def overdue_at(trusted_until: float, ttl_s: float) -> float:
    """When a warden that has not ended the work counts as stopped.  The claim has not expired yet."""
    return trusted_until + margin_s(ttl_s) / 5


def time_away_s(ttl_s: float, kill_after_s: float) -> float:
    """How long a store may be away without an effect on running work."""
    return ttl_s - margin_s(ttl_s) - notice_s(ttl_s, kill_after_s) - renew_s(ttl_s)


def trigger_ttl_s(timeout_s: float) -> float:
    """The lifetime of a trigger's claim: longer than a short timeout, so that most need no renewal.
    0: the work has no timeout, and the claim lives as long as its job says."""
    return min(timeout_s + AFTER_TIMEOUT_S, TRIGGER_TTL_MAX_S) if timeout_s else 0.0


def lane_wait_s(timeout_s: float) -> float:
    """How long a trigger under `Replace` waits for the fire that holds its lane to end."""
    return max(LANE_WAIT_MIN_S, timeout_s / 2)
