"""How long a node trusts a claim, and when it stops the work of a claim that it cannot renew.

Trust counts from the moment the request was sent.  When trust ends, the work is gone.  Only later can another
process get the claim:

    sent ... renewed every `renew_s` ... `term_by`: SIGTERM ... `trusted_by`: SIGKILL ... the claim expires
"""

STEP_S = 0.5  # a smaller step of a server's clock looks like a slow network
MARGIN_MIN_S = 2 * STEP_S  # one unnoticed clock step, and time to kill the work
CLAIM_MIN_S = 2  # a shorter claim could not be renewed in time
RENEWALS = 6  # per lifetime of a claim
AFTER_TIMEOUT_S = 30.0  # a trigger's claim outlives the timeout of its work by this time
TRIGGER_TTL_MAX_S = 90.0  # a store that lost data waits for the longest claim to expire
LANE_WAIT_MIN_S = 5.0


def margin_s(ttl_s: float) -> float:
    """Time between the end of trust in a claim and its earliest expiry."""
    return max(MARGIN_MIN_S, ttl_s / 10)


def trusted_by(sent: float, ttl_s: float) -> float:
    """End of trust in a claim that a request sent at `sent` granted or renewed."""
    return sent + ttl_s - margin_s(ttl_s)


def is_in_doubt(passed_s: float, ttl_s: float) -> bool:
    """Whether claims get more time if a clock that may have been set says that so much time has passed."""
    return passed_s > max(1.0, ttl_s / 2)


def renew_s(ttl_s: float) -> float:
    return ttl_s / RENEWALS


def notice_s(ttl_s: float, kill_after_s: float) -> float:
    """Time between SIGTERM and SIGKILL when trust ends."""
    return min(kill_after_s, renew_s(ttl_s))


def term_by(trusted_until: float, ttl_s: float, kill_after_s: float) -> float:
    """When the work gets SIGTERM unless the claim is renewed."""
    return trusted_until - notice_s(ttl_s, kill_after_s)


def overdue_at(trusted_until: float, ttl_s: float) -> float:
    """When a warden that has not killed the work counts as hung.  The claim has not expired yet."""
    return trusted_until + margin_s(ttl_s) / 5


def time_away_s(ttl_s: float, kill_after_s: float) -> float:
    """How long the store may be unavailable without affecting running work."""
    return ttl_s - margin_s(ttl_s) - notice_s(ttl_s, kill_after_s) - renew_s(ttl_s)


def trigger_ttl_s(timeout_s: float) -> float:
    """Lifetime of a trigger's claim: more than a short timeout, to save renewals; 0: the job's `claim_s`."""
    return min(timeout_s + AFTER_TIMEOUT_S, TRIGGER_TTL_MAX_S) if timeout_s else 0.0


def lane_wait_s(timeout_s: float) -> float:
    """How long a trigger under `Replace` waits for the holder of its lane to stop."""
    return max(LANE_WAIT_MIN_S, timeout_s / 2)
