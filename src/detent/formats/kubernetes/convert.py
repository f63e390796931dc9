"""Converts Kubernetes CronJobs to a version 2 manifest.

- A file may have several documents: CronJobs of batch/v1 and batch/v1beta1, and lists of them.
- A schedule has the meaning of the controller: if both day fields are restricted, also by a step, either is
  enough.  Without `timeZone`, it is in the controller's zone, which is usually UTC.
- `concurrencyPolicy` defaults to `Allow`, and a missed start is caught up once (`latest`).
- A failed pod is retried six times, with waits from 10 s to six minutes.
- Clock changes follow our rule; the controller skips a time in the gap.
- The app is the namespace, if all CronJobs have the same one.
- Fields that the cluster writes (status, uid, managedFields) are ignored.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, NamedTuple

from detent.errors import UsageError
from detent.formats.base import APP, FOREIGN, NAME_MAX, Converted, go_duration, slug, unique
from detent.formats.kubernetes.pods import pod_fields, warn_unread
from detent.manifest.fields import ATTEMPTS_MAX, TIMEOUT_MAX_S, YEAR_S
from detent.manifest.problems import ManifestError, Problem, escape_dollars, line_of
from detent.schedules.timetable import parse_schedule, period_text
from detent.text import quote, show

API_VERSIONS = ("batch/v1", "batch/v1beta1")
POLICIES = ("Allow", "Forbid", "Replace")
POD = "spec/jobTemplate/spec/template/spec"
LISTS = ("command", "args", "env", "envFrom")
BACKOFF_LIMIT = 6
BACKOFF_S = (10, 360)
TAG_MAX, TAGS_MAX = 63, 32
KEPT = "set `node.keep_fires` (per job) and `node.keep_days`, which apply to the whole node"
SPEC_ADVICE = {"successfulJobsHistoryLimit": KEPT, "failedJobsHistoryLimit": KEPT}
SPEC_READ = ("schedule", "timeZone", "suspend", "concurrencyPolicy", "startingDeadlineSeconds", "jobTemplate")
JOB_ADVICE = {
    "ttlSecondsAfterFinished": KEPT,
    "parallelism": "a fire runs its command once; start parallel work in the command",
    "completions": "a fire runs its command once; repeat it in the command",
    "podFailurePolicy": "list the exit codes to retry in `policy.retries.on_exit_codes`",
}
JOB_READ = ("backoffLimit", "activeDeadlineSeconds", "template")
CLUSTER_DEFAULTS = {
    "parallelism": 1,
    "completions": 1,
    "completionMode": "NonIndexed",
    "podReplacementPolicy": "Failed",
}
IGNORED_ANNOTATIONS = ("kubectl.kubernetes.io/", "deployment.kubernetes.io/")


class FoundCronJob(NamedTuple):
    path: str  # in the file: 0, or 1/items/2
    content: dict[str, Any]


def convert_kubernetes(documents: Sequence[Any], lines: Mapping[str, int], name: str = APP) -> Converted:
    """Convert the CronJobs of a file.  The paths of `lines` start with the number of the document.  `name`
    is the app if there is no common namespace."""
    reader = _Reader(lines)
    found = [one for i, document in enumerate(documents) for one in reader.find(document, str(i))]
    namespaces = {_text(_sub(one.content, "metadata").get("namespace")) for one in found} - {""}
    names = set[str]()
    jobs = [_CronJob(one, reader).job(names) for one in found]
    if not found:
        reader.problem("", "", "this file has no CronJob (batch/v1)")
    if reader.problems:
        raise ManifestError(reader.problems)
    app = namespaces.pop() if len(namespaces) == 1 else name
    if slug(app, NAME_MAX) != app:
        app = name
    return Converted(
        document={"version": 2, "app": app, "jobs": jobs},
        warnings=tuple(sorted(reader.warnings, key=lambda warning: warning.line)),
        lines={f"jobs/{i}": line_of(one.path, lines) for i, one in enumerate(found)},
        sources=tuple(_source(one) for one in found),
    )


def _source(found: FoundCronJob) -> str:
    metadata = _sub(found.content, "metadata")
    namespace = metadata.get("namespace")
    return f"CronJob {_text(metadata.get('name'))}" + (f" in {_text(namespace)}" if namespace else "")


class _Reader:
    def __init__(self, lines: Mapping[str, int]) -> None:
        self._lines = lines
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []

    def problem(self, path: str, inner: str, message: str) -> None:
        self.problems.append(Problem(inner, message, line_of(f"{path}/{inner}", self._lines)))

    def warning(self, path: str, inner: str, message: str) -> None:
        line = line_of(f"{path}/{inner}", self._lines)
        self.warnings.append(Problem(inner, message, line, code=FOREIGN))

    def find(self, document: Any, path: str) -> Iterator[FoundCronJob]:
        if document is None:
            return
        if not isinstance(document, dict) or not {"apiVersion", "kind"} <= set(document):
            self.problem(path, "", f"{show(document)} is not an object with apiVersion and kind")
        elif str(document["kind"]) in ("List", "CronJobList"):
            items = document.get("items")
            for i, item in enumerate(items if isinstance(items, list) else ()):
                yield from self.find(item, f"{path}/items/{i}")
        elif document["kind"] == "CronJob" and document["apiVersion"] in API_VERSIONS:
            yield FoundCronJob(path, document)
        elif document["kind"] == "CronJob":
            self.problem(
                path, "apiVersion", f"{show(document['apiVersion'])} is not batch/v1 or batch/v1beta1"
            )
        else:
            name = _text(_sub(document, "metadata").get("name"))
            self.warning(
                path, "kind", f"{_text(document['kind'])} {name}: it is not a CronJob; it is ignored"
            )


class _CronJob:
    def __init__(self, found: FoundCronJob, reader: _Reader) -> None:
        self._path, self._reader = found.path, reader
        self._metadata = _sub(found.content, "metadata")
        self._spec = _sub(found.content, "spec")
        self._job_spec = _sub(self._spec, "jobTemplate", "spec")

    def _warn(self, path: str, message: str) -> None:
        self._reader.warning(self._path, path, message)

    def _refuse(self, path: str, message: str) -> None:
        self._reader.problem(self._path, path, message)

    def job(self, names: set[str]) -> dict[str, Any]:
        job: dict[str, Any] = {"name": self._name(names), **self._when()}
        pod = _sub(self._job_spec, "template", "spec")
        if self._has_containers(pod):
            job.update(pod_fields(pod, POD, self._warn))
        if self._spec.get("suspend") is True:
            job["enabled"] = False
        if tags := self._tags():
            job["tags"] = tags
        job["policy"] = self._policy(pod)
        self._warn_unread()
        return job

    def _has_containers(self, pod: dict[str, Any]) -> bool:
        """Whether there are containers, and lists where lists are required."""
        containers = pod.get("containers")
        if not isinstance(containers, list) or not containers or not isinstance(containers[0], dict):
            self._refuse(f"{POD}/containers", "the list of containers is missing")
            return False
        held = {f"containers/0/{key}": containers[0].get(key) for key in LISTS}
        held["initContainers"] = pod.get("initContainers")
        wrong = [key for key, value in held.items() if not isinstance(value, list | NoneType)]
        for key in wrong:
            self._refuse(f"{POD}/{key}", f"{show(held[key])} is not a list")
        return not wrong

    def _name(self, names: set[str]) -> str:
        given = _text(self._metadata.get("name") or self._metadata.get("generateName"))
        if not given:
            self._refuse("metadata/name", "the name is missing")
        made = unique(slug(given if given[:1].isalpha() else f"job-{given}", NAME_MAX), names)
        if made != given:
            self._warn(
                "metadata/name",
                f"{quote(given)} becomes {made}: names are unique, with small letters, digits and hyphens",
            )
        return made

    def _tags(self) -> list[str]:
        labels = _sub(self._metadata, "labels")
        return [escape_dollars(f"{key}={_text(value)}"[:TAG_MAX]) for key, value in labels.items()][:TAGS_MAX]

    def _when(self) -> dict[str, Any]:
        text = _text(self._spec.get("schedule")).strip()
        zone = _text(self._spec.get("timeZone"))
        prefix = re.match(r"(?:CRON_)?TZ=(\S*)\s+", text)
        if prefix:
            text, zone = text[prefix.end() :], zone or prefix[1]
        if not zone:
            self._warn("spec/timeZone", "missing, so the controller's time zone applies; UTC is assumed")
        try:
            schedule = _schedule(text)
            parse_schedule(schedule, timezone=zone or "UTC")
        except UsageError as error:
            self._refuse("spec/timeZone" if "bad timezone" in str(error) else "spec/schedule", str(error))
            return {}
        return {"schedule": schedule} | ({"timezone": zone} if zone not in ("", "UTC") else {})

    def _policy(self, pod: dict[str, Any]) -> dict[str, Any]:
        policy: dict[str, Any] = {"concurrency": self._concurrency()}
        timeout_s = self._timeout(pod)
        if timeout_s:
            policy["timeout_seconds"] = timeout_s
        attempts = self._attempts()
        if attempts > 1:
            low_s, high_s = BACKOFF_S
            policy["retries"] = {"max_attempts": attempts, "min_seconds": low_s, "max_seconds": high_s}
        deadline_s = self._number(self._spec, "spec", "startingDeadlineSeconds")
        if deadline_s is not None:
            policy["start_deadline_seconds"] = min(max(deadline_s, 1), YEAR_S)
        return policy

    def _concurrency(self) -> str:
        given = self._spec.get("concurrencyPolicy") or "Allow"
        if given not in POLICIES:
            self._refuse("spec/concurrencyPolicy", f"{show(given)} is not {', '.join(POLICIES)}")
        return str(given)

    def _timeout(self, pod: dict[str, Any]) -> int:
        """A pod's deadline limits one attempt; a Job's limits all its attempts together."""
        place = "spec/jobTemplate/spec"
        of_pod = self._number(pod, f"{place}/template/spec", "activeDeadlineSeconds")
        of_job = self._number(self._job_spec, place, "activeDeadlineSeconds")
        given = min((limit for limit in (of_pod, of_job) if limit), default=0)
        if of_job and self._attempts() > 1:
            message = "it limits all attempts together; `timeout_seconds` limits each attempt"
            self._warn(f"{place}/activeDeadlineSeconds", message)
        if given > TIMEOUT_MAX_S:
            self._warn(f"{place}/activeDeadlineSeconds", "a timeout is at most 7 days; the job gets none")
            return 0
        return given

    def _attempts(self) -> int:
        limit = self._number(self._job_spec, "spec/jobTemplate/spec", "backoffLimit")
        return min((BACKOFF_LIMIT if limit is None else limit) + 1, ATTEMPTS_MAX)

    def _number(self, holder: dict[str, Any], path: str, key: str) -> int | None:
        value = holder.get(key)
        if value is None:
            return None
        if type(value) is int and value >= 0:
            return value
        self._refuse(f"{path}/{key}", f"{show(value)} is not a whole number of 0 or more")
        return None

    def _warn_unread(self) -> None:
        warn_unread(self._spec, "spec", SPEC_READ, SPEC_ADVICE, self._warn)
        job_spec = {key: value for key, value in self._job_spec.items() if CLUSTER_DEFAULTS.get(key) != value}
        warn_unread(job_spec, "spec/jobTemplate/spec", JOB_READ, JOB_ADVICE, self._warn)
        notes = [
            key for key in _sub(self._metadata, "annotations") if not key.startswith(IGNORED_ANNOTATIONS)
        ]
        if notes:
            self._warn("metadata/annotations", f"{', '.join(notes)}: ignored")


def _schedule(text: str) -> str:
    """Convert a schedule, or raise a `UsageError` for one that the controller refuses."""
    if text.lower().startswith("@every"):
        return f"@every {_every(text)}"
    parse_schedule(text, version=1)
    words = text.split()
    if len(words) == 5 and all(words[at] not in ("*", "?") for at in (2, 4)):
        # The controller treats `*/2` as a restriction; in our syntax, a field that starts with * is none.
        words[2] = re.sub(r"(^|,)\*/(?!1(?:,|$))", r"\g<1>1-31/", words[2])
        words[4] = re.sub(r"(^|,)\*/(?!1(?:,|$))", r"\g<1>0-6/", words[4])
    return " ".join(words)


def _every(text: str) -> str:
    seconds = go_duration(text[len("@every") :].strip())
    if seconds is None or seconds < 0:
        raise UsageError(f"bad schedule {quote(text)}: write @every and a duration, such as 1h30m")
    return period_text(max(1, math.floor(seconds)))


def _sub(holder: Any, *keys: str) -> dict[str, Any]:
    """Return a mapping inside an object; an empty one if it is missing."""
    for key in keys:
        holder = holder.get(key) if isinstance(holder, dict) else None
    return holder if isinstance(holder, dict) else {}


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else show(value)
