"""The routes that change something.  Each leaves an audit record and an event, also if it was refused."""

import secrets
from collections.abc import Callable
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from detent import clock
from detent.dashboard.asked import args_of, check_names, keys_of, reason_of, until_of
from detent.dashboard.audit import write_audit
from detent.dashboard.auth import User
from detent.dashboard.fires import read_fire
from detent.dashboard.gate import USER, Refusal, body_of
from detent.dashboard.observer import Observer
from detent.dashboard.source import in_thread
from detent.dashboard.tasks import BadArguments, app_in_code, find_task, push_with
from detent.errors import DetentError, StoreUnavailable, UsageError
from detent.model import DEAD, Query
from detent.rules.planning import manual_fire
from detent.rules.rates import without_priority
from detent.stores.base import PAUSE, app_of
from detent.text import quote
from detent.views.formatting import iso, printable, relative
from detent.views.json_records import state_text
from detent.views.lookup import job_of, known_jobs
from detent.views.nodes import require_served
from detent.views.pauses import Pause, find_pauses, pause_record

TOKEN_BYTES = 4
FIELDS = {"fire": ("args",), "pause": ("until",), "retry": ("keys",), "forget": ("keys",)}
RESULT_MAX = 200  # characters of a result in the audit record


class Act(NamedTuple):
    action: str
    subject: str  # the name of a job or a queue, or the key of a fire
    app: str
    user: User
    reason: str
    body: dict[str, Any]


class Done(NamedTuple):
    answer: dict[str, Any]
    result: str  # for the audit record
    status: int = 200


class Acting:
    def __init__(self, observer: Observer) -> None:
        self._observer, self._source = observer, observer.source

    async def handle(self, action: str, request: Request) -> Response:
        """Do what is asked.  `FIELDS` has what the body may have besides a reason."""
        do: Callable[[Act], Done] = getattr(self, f"_{action}")
        body = await body_of(request)
        check_names(body, ("reason", *FIELDS.get(action, ())))
        [(kind, subject)] = request.path_params.items()
        apps = await self._observer.find_apps()
        app = app_of(subject)
        if kind == "queue":  # its app is a parameter
            app = request.query_params.get("app", "") or (apps or [""])[0]
        if app not in apps:
            raise Refusal(404, f"no app {quote(app[:80])} in the store: write whole names, as app.job")
        act = Act(action, subject, app, request.scope[USER], reason_of(body), body)
        done = await in_thread(self._recorded, act, do)
        self._observer.hurry(app)
        return JSONResponse(done.answer, done.status)

    def _recorded(self, act: Act, do: Callable[[Act], Done]) -> Done:
        try:
            done = do(act)
        except (Refusal, DetentError) as error:
            is_hidden = self._source.hides_arguments and isinstance(error, BadArguments)
            if not isinstance(error, StoreUnavailable):
                self._record(act, f"refused: {'bad arguments' if is_hidden else error}")
            raise
        self._record(act, done.result)
        return done

    def _record(self, act: Act, result: str) -> None:
        fields = {"user": act.user.name, "action": act.action, "subject": act.subject[:RESULT_MAX]}
        said = self._source.mask.text(printable(result))  # an error may repeat what the user typed
        fields |= {"reason": act.reason, "result": said[:RESULT_MAX]}
        self._source.emit("operated", app=act.app, **fields)
        write_audit(self._source.store, act.app, fields)

    # Jobs.

    def _fire(self, act: Act) -> Done:
        """Run a job as it is defined or, with arguments, push a message of its task."""
        text, manifest = args_of(act.body), self._source.manifests.get(act.app)
        is_job = manifest is not None and act.subject.partition("/")[0] in manifest.canonical
        if not text and (is_job or find_task(self._source, act.subject) is None):
            return self._start(act, act.subject)
        if manifest and is_job:
            job_of(manifest, act.subject)  # refuses a disabled job
        key, shown = push_with(self._source, act.subject, text)
        return Done({"fire": key}, f"{key} with {shown}" if shown else key, 201)

    def _start(self, act: Act, name: str) -> Done:
        context = self._source.context(act.app)
        if context.manifest is None or name.partition("/")[0] not in context.manifest.canonical:
            raise Refusal(
                409,
                f"{quote(name[:80])} cannot run from here: only its manifest defines it;"
                " start the dashboard with the manifest that has it",
            )
        job = job_of(context.manifest, name)
        store = require_served(context, job)
        fire = manual_fire(job, clock.now().replace(microsecond=0), secrets.token_hex(TOKEN_BYTES))
        store.put([fire])
        return Done({"fire": fire.key}, fire.key, 201)

    def _pause(self, act: Act) -> Done:
        until, now = until_of(act.body), clock.now()
        if until and until <= now:
            raise Refusal(400, f"bad until {iso(until)}: it has passed already")
        self._check_job(act)
        text = Pause(act.subject, act.user.name, act.reason, now, None).text
        ttl_s = (until - now).total_seconds() if until else 0.0
        self._source.store.note(act.app, PAUSE + act.subject, text, ttl_s)
        pause = find_pauses(self._source.store, [act.app])[act.subject]
        return Done(pause_record(pause), f"until {iso(until)}" if until else "until it is resumed")

    def _resume(self, act: Act) -> Done:
        was_paused = act.subject in find_pauses(self._source.store, [act.app])
        if not was_paused:
            self._check_job(act)
        self._source.store.note(act.app, PAUSE + act.subject, "")
        return Done({"resumed": was_paused}, "resumed" if was_paused else "it was not paused")

    def _check_job(self, act: Act) -> None:
        if act.subject not in known_jobs(self._source.context(act.app)):
            raise Refusal(404, f"no job {quote(act.subject[:80])}: write its whole name, app.job")

    # Fires.

    def _kill(self, act: Act) -> Done:
        store = self._source.store
        read_fire(store, act.subject)
        why = f": {act.reason}" if act.reason else ""
        is_open = store.cancel(act.subject, f"killed by {act.user.name}{why}")
        row = read_fire(store, act.subject)
        if not is_open:
            when = f" {relative(row.over_at, clock.now())}" if row.over_at else ""
            raise Refusal(409, f"{act.subject} is over already: {state_text(row)}{when}")
        return Done({"fire": act.subject, "state": state_text(row)}, state_text(row))

    def _again(self, act: Act) -> Done:
        row = read_fire(self._source.store, act.subject)
        if row.fire.origin == "hook":
            raise Refusal(409, f"{act.subject} is a hook: run its fire again instead")
        if row.fire.origin != "push":
            return self._start(act, row.fire.job)
        new = self._push_again(act, without_priority(row.fire.queue), act.subject)
        return Done({"fire": new}, new, 201)

    # Messages.

    def _retry(self, act: Act) -> Done:
        retried, errors = [], []
        for key in keys_of(act.body):
            try:
                retried.append({"fire": key, "new": self._push_again(act, act.subject, key)})
            except UsageError as error:
                errors.append({"fire": key, "error": str(error)})
        result = f"{len(retried)} retried, {len(errors)} refused"
        return Done({"retried": retried, "errors": errors}, result)

    def _push_again(self, act: Act, queue: str, key: str) -> str:
        handles = app_in_code(self._source, act.app).queue(queue).retry(key)
        if not handles:
            raise UsageError(f"{quote(key[:120])} was retried already")
        return handles[0].key

    def _forget(self, act: Act) -> Done:
        store, keys = self._source.store, keys_of(act.body)
        dead = [
            row.fire.key
            for row in store.find(
                Query(app=act.app, keys=tuple(keys), state="over", kinds=DEAD, limit=len(keys))
            )
            if row.fire.origin == "push" and without_priority(row.fire.queue) == act.subject
        ]
        gone = store.forget(dead) if dead else 0
        return Done({"forgotten": gone}, f"{gone} forgotten")
