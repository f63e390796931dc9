"""A job whose work is to enqueue a message: the message is made here, and stored when the fire is settled.

The key of the message is made from the fire's run id: repeated settling stores the same message.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from detent.errors import UsageError
from detent.manifest.secret_refs import Secret, display_ref
from detent.messages.message import MessageOptions, PushContext, Task, message
from detent.model import Call, Claim, End, Outcome, Policy, Push
from detent.rules.outcomes import no_secret


def push(work: Push, claim: Claim, secrets: Sequence[Secret], trace: str = "") -> End:
    """Return the message in `End.follow`.  `trace` is the `traceparent` of the attempt."""
    fire, granted_at = claim.fire, claim.expires_at - timedelta(seconds=claim.ttl_s)
    app = fire.job.partition(".")[0]
    lane = "" if fire.policy.concurrency == "Allow" else fire.job.partition(".")[2]
    task = Task(work.task, Call(""), queue=work.queue, policy=_policy(fire.policy), lane=lane)
    options = MessageOptions(priority=work.priority, expires_s=work.expires_s)
    if work.secret_refs and not secrets:
        return End(no_secret(", ".join(map(display_ref, work.secret_refs))))
    try:
        context = PushContext(app, granted_at, fire.run_id, trace=trace)
        made = message(task, work.args, options, context, secrets)
    except UsageError as error:
        return End(Outcome("failed", str(error)))
    return End(Outcome("succeeded"), follow=(made,))


def _policy(policy: Policy) -> Policy:
    """The policy of the job applies to the runs of the message: the fire itself only enqueues it."""
    return Policy(
        concurrency="Queue" if policy.concurrency == "Replace" else policy.concurrency,
        max_running=policy.max_running,
        timeout_s=policy.timeout_s,
        retries=policy.retries,
        on_lost="rerun" if policy.retries.max_attempts > 1 else policy.on_lost,
        claim_s=policy.claim_s,
        drop_result=True,
    )
