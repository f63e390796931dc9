"""Tasks: functions that run when a worker receives a message, and the ways to push those messages."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload
from weakref import WeakValueDictionary

from detent.app.declarations import Location, checked_path, name_of
from detent.app.queue.arguments import Parameters, caller
from detent.app.queue.options import TASK, Message, PushOptions, PushSpec, checked, push_spec_of, task_of
from detent.errors import UsageError
from detent.messages.envelope import PAYLOAD_MAX
from detent.messages.message import WITH_RESULT, Task, link
from detent.runners.call.function import RESULT_MAX
from detent.text import quote

if TYPE_CHECKING:
    from detent.app.app import Detent
    from detent.app.queue.handles import Handle

P = ParamSpec("P")
R = TypeVar("R")  # what a call of the function returns
T = TypeVar("T")  # the result of the task: for an async function, the awaited value
Item = Sequence[Any] | Mapping[str, Any]


class Push(Generic[P, T]):
    """Pushes messages of one task with the same options."""

    def __init__(self, owner: TaskFunction[P, Any, T], spec: PushSpec) -> None:
        self._owner, self._spec = owner, spec

    def push(self, *args: P.args, **kwargs: P.kwargs) -> Handle[T]:
        """Push a message with these arguments."""
        return self._send([self._owner.parameters.text(args, kwargs)])[0]

    def push_many(self, items: Iterable[Item]) -> list[Handle[T]]:
        """Push a message for each item, which is a tuple of positions or a mapping of names."""
        return self._send([*map(self._owner.parameters.item_text, items)])

    async def apush(self, *args: P.args, **kwargs: P.kwargs) -> Handle[T]:
        """Like `push`, for async code."""
        return (await self._asend([self._owner.parameters.text(args, kwargs)]))[0]

    async def apush_many(self, items: Iterable[Item]) -> list[Handle[T]]:
        """Like `push_many`, for async code."""
        return await self._asend([*map(self._owner.parameters.item_text, items)])

    def message(self, *args: P.args, **kwargs: P.kwargs) -> Message:
        """A message for the end of another one: `then=audit.message(7)`."""
        return self._linked(self._owner.parameters.text(args, kwargs))

    def message_with_result(self, *more: Any) -> Message:
        """The same; its first argument is the result of the other message, `more` are the following ones."""
        text, task = self._owner.parameters.text((None, *more), {}, later=1), self._owner.task
        if len(text) > PAYLOAD_MAX - 2 * RESULT_MAX:
            raise UsageError(
                f"{caller()}task {quote(task.name)}: its arguments leave no room for the result of the other "
                "task: keep large data elsewhere and send its name"
            )
        made = self._linked(text)
        return made._replace(link={**made.link, WITH_RESULT: True})

    def _linked(self, text: str) -> Message:
        spec, task = self._spec, self._owner.task
        given = {"delay": spec.options.delay_s, "at": spec.at, "connection": spec.connection is not None}
        if wrong := [name for name, value in given.items() if value]:
            why = f"{wrong[0]} is not allowed for a message that follows another"
            raise UsageError(f"{caller()}task {quote(task.name)}: {why}")
        return Message(self._owner.app.name, link(task.name, text, spec.options))

    def _send(self, texts: list[str]) -> list[Handle[T]]:
        return self._owner.app.sender.push(self._owner.task, texts, self._spec)

    async def _asend(self, texts: list[str]) -> list[Handle[T]]:
        return await self._owner.app.sender.apush(self._owner.task, texts, self._spec)


class TaskFunction(Push[P, T], Generic[P, R, T]):
    """The result of `@app.task`.  A call of it calls the function."""

    def __init__(self, app: Detent, function: Callable[P, R], task: Task, where: Location) -> None:
        functools.update_wrapper(self, function)
        super().__init__(self, PushSpec())
        self.app, self.task, self.where = app, task, where
        self.task_function = function
        self.asks_for_process = False  # True: isolation="process" was given, and is not just the default

    @functools.cached_property
    def parameters(self) -> Parameters:
        return Parameters(self.task.name, self.task_function)

    @property
    def name(self) -> str:
        return self.task.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.task_function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.app.name}.{self.task.name} at {self.where}>"

    def __reduce__(self) -> str:
        """Pickle it by its name, like a function."""
        return str(self.task_function.__qualname__)

    def options(self, **options: Unpack[PushOptions]) -> Push[P, T]:
        """Set the options of the next pushes, like delay, priority, uniqueness or following messages."""
        where = f"{caller()}task {quote(self.task.name)}"
        return Push(self, push_spec_of(self.app.name, self.task, options, where))


class Declare(Protocol):
    """The decorator that `Detent.task` returns."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> TaskFunction[P, Coroutine[Any, Any, T], T]: ...

    @overload
    def __call__(self, function: Callable[P, T], /) -> TaskFunction[P, T, T]: ...


def declare_task(
    app: Detent, function: Callable[P, R], options: Mapping[str, Any], where: Location
) -> TaskFunction[P, R, Any]:
    if not callable(function):
        raise UsageError(f"{where}: @app.task is for functions, and {function!r} is none")
    name = options.get("name") or name_of(function, where, "task")
    given = checked(TASK, {**options, "name": name}, f"{where}: task {quote(str(name))}")
    task = task_of(name, checked_path(app.name, function, given, where, "task-"), given, where)
    call = task.call._replace(is_async=inspect.iscoroutinefunction(function))
    made: TaskFunction[P, R, Any] = TaskFunction(app, function, task._replace(call=call), where)
    made.asks_for_process = options.get("isolation") == "process"
    declared[id(function)] = made
    return made


# By the id of their functions: a worker finds the function, and needs its task.
declared = WeakValueDictionary[int, TaskFunction[..., Any, Any]]()
