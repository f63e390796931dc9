"""Kubernetes: a CronJob for each schedule and a ConfigMap for each spec, in one namespace.

- Objects are changed by server-side apply with the field manager `detent`.
- A change names the version that it replaces, so two machines cannot overwrite each other's changes; two
  processes on one machine wait for each other.
- Secrets are referenced, never written.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from urllib.parse import urlsplit

from detent.errors import HostError, UsageError
from detent.formats.kubernetes.convert import convert_kubernetes
from detent.formats.kubernetes.render import cronjob_schedules
from detent.hosts.adoption import Identity, Unmanaged, unmanaged_job
from detent.hosts.base import Host, Option, Settings, render_schedules
from detent.hosts.kubernetes import objects
from detent.hosts.kubernetes.cluster import Cluster
from detent.hosts.kubernetes.config import find_access
from detent.hosts.reconcile import PREFIX, Change, Found, Resource
from detent.hosts.remote import check_shared, user_warnings
from detent.manifest.spec import Spec
from detent.text import quote

OPTIONS = (
    Option("image", "the image that contains detent and the jobs' programs", "IMAGE"),
    Option("namespace", "the namespace (default: the kubeconfig's)", "NAME", is_location=True),
    Option(
        "kubeconfig",
        "how to reach the cluster (default: $KUBECONFIG, ~/.kube/config, the pod's)",
        "FILE",
        is_location=True,
    ),
    Option("context", "the context of the kubeconfig (default: its current one)", "NAME", is_location=True),
    Option("store-secret", "the Secret that holds the store's URL (KEY: url)", "NAME[:KEY]"),
    Option("secret", "the Secret with the variables of the jobs' secrets (default: detent-APP)", "NAME"),
    Option("service-account", "the account of the pods (default: none is mounted)", "NAME"),
    Option("cpu", "the CPU of each pod, such as 100m", "AMOUNT"),
    Option("memory", "the memory of each pod, such as 128Mi", "AMOUNT"),
    Option("render", "print the objects and change nothing", only="apply"),
)
ADVICE = "keep its URL in a Secret, and name it with --store-secret"

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_CPU = re.compile(r"[1-9][0-9]*m?")
_MEMORY = re.compile(r"([1-9][0-9]*)([KMGT]i)")
_UNITS = ("Ki", "Mi", "Gi", "Ti")


def open_host(settings: Settings) -> Host:
    for option, form in (("namespace", _LABEL), ("secret", _SUBDOMAIN), ("service_account", _SUBDOMAIN)):
        value = settings.option(option)
        if value and not form.fullmatch(value):
            name = option.replace("_", "-")
            raise UsageError(f"--{name} {quote(value)} is not a valid name: use small letters, digits and -")
    return KubernetesHost(settings)


class KubernetesHost:
    """One namespace of a cluster; with `--render`, no cluster is used."""

    name = "kubernetes"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._live: dict[str, objects.Object] = {}
        self._namespace = settings.option("namespace", "default")
        self._cluster: Cluster | None = None
        self._server = ""
        if not settings.options.get("render"):
            self._cluster, self._server = self._reach()
        self.where = f"the namespace {self._namespace} of {self._server}"
        self.identity = Identity(objects.account_name(settings.option("service_account")))

    def _reach(self) -> tuple[Cluster, str]:
        settings = self._settings
        access = find_access(settings.option("kubeconfig"), settings.option("context"), settings.env)
        self._namespace = settings.option("namespace", access.namespace)
        return Cluster(access, self._namespace), access.server

    @property
    def _api(self) -> Cluster:
        if self._cluster is None:
            raise UsageError("--render is for `detent apply`: it prints the objects without a cluster")
        return self._cluster

    def lock(self) -> AbstractContextManager[None]:
        place = re.sub(r"[^A-Za-z0-9.]+", "-", f"{urlsplit(self._server).netloc}-{self._namespace}")
        return self._settings.lock(f"kubernetes-{place}")

    def render(self, specs: Sequence[Spec]) -> list[Resource]:
        pod = self._pod()
        check_shared(self.name, specs, "" if pod.store_secret else ADVICE)
        made: list[Resource] = []
        for spec, schedules in render_schedules(
            self.name, specs, lambda spec, index: cronjob_schedules(spec.times[index].instants)
        ):
            cronjobs = [
                objects.make_cronjob(spec, index, schedule, pod) for index, schedule in enumerate(schedules)
            ]
            made += [objects.resource_of(one, spec) for one in (objects.make_configmap(spec, pod), *cronjobs)]
        return made

    def _pod(self) -> objects.Pod:
        option = self._settings.option
        image = option("image")
        if not image:
            raise UsageError("name the image that contains detent and the jobs' programs with --image")
        if not image.isprintable() or " " in image:
            raise UsageError(f"--image {quote(image)} is not an image name")
        return objects.Pod(
            image=image,
            namespace=self._namespace,
            program=self._settings.detent,
            store_secret=_secret_key(option("store_secret")),
            secret=option("secret", f"detent-{self._settings.app}".rstrip("-")),
            service_account=option("service_account"),
            resources=_resources(option("cpu"), option("memory")),
        )

    def find(self) -> list[Found]:
        self._live = {
            objects.name_of(one): one
            for kind in (objects.CONFIGMAP, objects.CRONJOB)
            for one in self._api.list(kind)
        }
        found = [objects.read_object(one) for one in self._live.values()]
        return [one for one in found if one.job or one.name.partition("/")[2].startswith(PREFIX)]

    def unmanaged(self) -> list[Unmanaged]:
        return list(_find_unmanaged(self._api.list(objects.CRONJOB)))

    def warnings(self, specs: Sequence[Spec]) -> list[str]:
        secret = self._pod().secret
        variables = sorted({variable for spec in specs for variable in spec.variables})
        return [
            *user_warnings(specs, self.name),
            *(f"pods wait until the Secret {secret} exists and has the key {name}" for name in variables),
        ]

    def change(self, changes: Sequence[Change], retire: Sequence[Unmanaged] = ()) -> None:
        """Write specs before the CronJobs that use them, and delete them after."""
        fresh = [change for change in changes if change.action in ("create", "update")]
        gone = [change for change in changes if change.action == "delete"]
        for change in sorted(fresh, key=lambda change: change.kind == objects.CRONJOB):
            self._apply(change)
        written = {change.name for change in fresh}
        for entry in retire:
            if entry.name not in written:  # else it was replaced under the same name
                self._retire(entry)
        for change in sorted(gone, key=lambda change: change.kind != objects.CRONJOB):
            self._api.delete(self._live[change.name])

    def _apply(self, change: Change) -> None:
        assert change.after is not None
        wanted = objects.load(change.after.content)
        before = self._live.get(change.name) if change.action == "update" else None
        if before is None:
            self._live[change.name] = self._api.apply(wanted)
            return
        if before["metadata"].get("deletionTimestamp"):
            raise HostError(f"{change.name} is still being deleted: apply again later")
        self._back_up(before)
        after = self._api.apply(wanted, before["metadata"]["resourceVersion"])
        if objects.read_object(after).content != change.after.content:
            after = self._api.replace(_without_others(after, wanted))
        self._live[change.name] = after

    def _retire(self, entry: Unmanaged) -> None:
        for live in self._api.list(objects.CRONJOB):
            if live["metadata"]["name"] == entry.place:
                self._back_up(live)
                self._api.delete(live)

    def _back_up(self, live: objects.Object) -> None:
        label = f"kubernetes-{self._namespace}-{objects.name_of(live).replace('/', '-')}"
        self._settings.back_up(label, objects.dump(live).encode())


def _find_unmanaged(cronjobs: Iterable[objects.Object]) -> Iterator[Unmanaged]:
    """Yield each CronJob without a mark that can be converted, and so compared with a job."""
    for cronjob in cronjobs:
        if objects.JOB in (cronjob["metadata"].get("annotations") or {}):
            continue
        plain = {key: cronjob[key] for key in ("apiVersion", "kind", "spec")}
        plain["metadata"] = {"name": cronjob["metadata"]["name"]}
        try:
            job = convert_kubernetes([plain], {}).document["jobs"][0]
        except UsageError:
            continue
        pod = cronjob["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        yield unmanaged_job(objects.name_of(cronjob), objects.dump(plain), job)._replace(
            place=cronjob["metadata"]["name"],
            user=objects.account_name(str(pod.get("serviceAccountName") or pod.get("serviceAccount") or "")),
        )


def _without_others(live: objects.Object, wanted: objects.Object) -> objects.Object:
    """Return the wanted object, without the fields and the ownership of other managers."""
    entries = live["metadata"].get("managedFields", [])
    others = [
        one
        for one in objects.own_entries(entries)
        if (one["manager"], one["operation"]) != (objects.MANAGER, "Apply")
    ]
    kept = [one for one in entries if one not in others]
    metadata = {**live["metadata"], "managedFields": kept}
    return {**wanted, "metadata": metadata}


def _secret_key(given: str) -> tuple[str, str] | None:
    if not given:
        return None
    name, _, key = given.partition(":")
    if not _SUBDOMAIN.fullmatch(name) or (key and not _KEY.fullmatch(key)):
        raise UsageError(f"--store-secret {quote(given)} is not NAME or NAME:KEY of a Secret")
    return name, key or "url"


def _resources(cpu: str, memory: str) -> objects.Object | None:
    """Return amounts in the form of the cluster, so that they compare equal.  Memory is limited to its
    request."""
    if cpu and not _CPU.fullmatch(cpu):
        raise UsageError(f"--cpu {quote(cpu)} is not a number of cores or millicores, such as 1 or 100m")
    if memory and not _MEMORY.fullmatch(memory):
        raise UsageError(f"--memory {quote(memory)} is not a number of Ki, Mi, Gi or Ti, such as 128Mi")
    asked = {
        **({"cpu": cpu.removesuffix("000m")} if cpu else {}),
        **({"memory": _memory(memory)} if memory else {}),
    }
    limits = {"limits": {"memory": asked["memory"]}} if memory else {}
    return {"requests": asked, **limits} if asked else None


def _memory(text: str) -> str:
    amount, unit = int(text[:-2]), text[-2:]
    while amount % 1024 == 0 and unit != _UNITS[-1]:
        amount, unit = amount // 1024, _UNITS[_UNITS.index(unit) + 1]
    return f"{amount}{unit}"
