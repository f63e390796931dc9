"""CronJobs that are not ours, as `adopt` sees them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from detent.errors import UsageError
from detent.formats.kubernetes.convert import convert_kubernetes
from detent.hosts.adoption import Unmanaged
from detent.hosts.base import triggered_job
from detent.hosts.kubernetes.objects import JOB, Object, account_name, dump, name_of
from detent.manifest.problems import ManifestError


def find_unmanaged(cronjobs: Iterable[Object]) -> list[Unmanaged]:
    """Every CronJob without our mark.  One that cannot be converted is nothing to compare a job with."""
    found = (one for one in cronjobs if JOB not in (one["metadata"].get("annotations") or {}))
    return [entry for one in found if (entry := _unmanaged(one)) is not None]


def _unmanaged(cronjob: Object) -> Unmanaged | None:
    plain = {key: cronjob[key] for key in ("apiVersion", "kind", "spec")}
    plain["metadata"] = {"name": cronjob["metadata"]["name"]}
    try:
        job = convert_kubernetes([plain], {}).document["jobs"][0]
    except (ManifestError, UsageError):
        return None
    pod = cronjob["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    command = job.get("command", "")
    told = command if isinstance(command, str) else shlex.join(command)
    meant = told.replace("$$", "$")
    return Unmanaged(
        name=name_of(cronjob),
        place=cronjob["metadata"]["name"],
        content=dump(plain),
        schedules=(job["schedule"],),
        timezone=job.get("timezone", "UTC"),
        command=meant,
        user=account_name(str(pod.get("serviceAccountName") or pod.get("serviceAccount") or "")),
        job=triggered_job(meant),
    )
