"""Finds the CronJobs of other owners, for `detent adopt`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from detent.errors import UsageError
from detent.formats.kubernetes.convert import convert_kubernetes
from detent.hosts.adoption import Unmanaged, unmanaged_job
from detent.hosts.kubernetes.objects import JOB, Object, account_name, dump, name_of
from detent.manifest.problems import ManifestError


def find_unmanaged(cronjobs: Iterable[Object]) -> Iterator[Unmanaged]:
    """Yield each CronJob without a mark that can be converted, and so compared with a job."""
    for cronjob in cronjobs:
        if JOB in (cronjob["metadata"].get("annotations") or {}):
            continue
        plain = {key: cronjob[key] for key in ("apiVersion", "kind", "spec")}
        plain["metadata"] = {"name": cronjob["metadata"]["name"]}
        try:
            job = convert_kubernetes([plain], {}).document["jobs"][0]
        except (ManifestError, UsageError):
            continue
        pod = cronjob["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        yield unmanaged_job(name_of(cronjob), dump(plain), job)._replace(
            place=cronjob["metadata"]["name"],
            user=account_name(str(pod.get("serviceAccountName") or pod.get("serviceAccount") or "")),
        )
