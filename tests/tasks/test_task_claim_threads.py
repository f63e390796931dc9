"""What several threads ask of the store at once goes there in one call; each gets what is its own."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from detent import Detent
from detent.clock import instant
from detent.errors import StoreUnavailable
from detent.model import Claim, Fire, Outcome, Policy, Report, Verdict
from detent.queueing.together import Kind, Together, Told

MAIL, NEWS = Kind(("mail",), 30.0), Kind(("news",), 30.0)
PATIENCE_S = 20.0


def claim_of(number: int) -> Claim:
    fire = Fire(f"a.j#{number}", "a.j", instant(0), policy=Policy(), origin="push")
    return Claim(fire, "n1", number, 1, 30.0, instant(30))


def report_of(number: int) -> Report:
    return Report(claim_of(number), Verdict(Outcome("succeeded", f"r{number}")))


class Desk:
    """Answers as a store with as many messages as there are; each call waits until it is let through."""

    def __init__(self, messages: int) -> None:
        self.left = iter(range(1, messages + 1))
        self.calls: list[tuple[Kind | None, int, list[str]]] = []
        self.begun, self.may_end = threading.Semaphore(0), threading.Semaphore(0)
        self.sentenced = 0  # so many more that are only to be settled
        self.errors: dict[int, BaseException] = {}  # by the number of the call
        self.together = Together(self.carry)

    def carry(self, kind: Kind | None, limit: int, reports: list[Report]) -> Told:
        self.calls.append((kind, limit, [report.verdict.outcome.reason for report in reports]))
        number = len(self.calls)
        self.begun.release()
        assert self.may_end.acquire(timeout=PATIENCE_S)
        if error := self.errors.get(number):
            raise error
        claims = [claim_of(one) for _, one in zip(range(limit), self.left, strict=False)]
        claims += [claim_of(-one)._replace(sentence=Outcome("missed")) for one in range(self.sentenced)]
        return Told([report.verdict for report in reports], claims, instant(0), 0.0, float(number))


@contextmanager
def behind_a_call(desk: Desk, *asks: tuple[Kind | None, int, list[Report]]) -> Iterator[list[Future[Told]]]:
    """One asks; while that call is under way the others come, and wait."""
    first = begun(desk, (MAIL, 1, []))
    assert desk.begun.acquire(timeout=PATIENCE_S)
    others = []
    for place, ask in enumerate(asks):
        others.append(begun(desk, ask))
        until(lambda seen=place + 1: len(desk.together._waiting) == seen)  # type: ignore[misc]
    desk.may_end.release()
    yield [first, *others]


def begun(desk: Desk, ask: tuple[Kind | None, int, list[Report]]) -> Future[Told]:
    """In a thread of its own, which nobody waits for at the end."""
    told: Future[Told] = Future()

    def run() -> None:
        try:
            told.set_result(desk.together.ask(*ask))
        except BaseException as error:
            told.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return told


def until(holds: Callable[[], bool]) -> None:
    ticks = threading.Event()
    for _ in range(int(PATIENCE_S * 1000)):
        if holds():
            return
        ticks.wait(0.001)
    raise AssertionError("it did not come to that")


def keys(told: Future[Told]) -> list[str]:
    return [claim.fire.key for claim in told.result(PATIENCE_S).claims]


def test_who_comes_during_a_call_shares_the_next() -> None:
    desk = Desk(10)
    with behind_a_call(desk, (MAIL, 2, []), (MAIL, 1, []), (MAIL, 3, [])) as asked:
        desk.may_end.release()
        assert [keys(one) for one in asked] == [
            ["a.j#1"],
            ["a.j#2", "a.j#3"],
            ["a.j#4"],
            ["a.j#5", "a.j#6", "a.j#7"],
        ]
    assert [call[:2] for call in desk.calls] == [(MAIL, 1), (MAIL, 6)]
    assert [one.result().sent for one in asked] == [1.0, 2.0, 2.0, 2.0]


def test_reports_go_along_and_each_gets_the_verdicts_of_its_own() -> None:
    desk = Desk(3)
    asks = [(None, 0, [report_of(7), report_of(8)]), (MAIL, 1, []), (MAIL, 1, [report_of(9)])]
    with behind_a_call(desk, *asks) as asked:
        desk.may_end.release()
        told = [one.result(PATIENCE_S) for one in asked[1:]]
    assert desk.calls[1] == (MAIL, 2, ["r7", "r8", "r9"])
    assert [[v.outcome.reason for v in one.verdicts if v] for one in told] == [["r7", "r8"], [], ["r9"]]
    assert [keys(one) for one in asked[1:]] == [[], ["a.j#2"], ["a.j#3"]]


def test_those_who_ask_for_something_else_have_a_call_of_their_own() -> None:
    desk = Desk(10)
    with behind_a_call(desk, (NEWS, 1, []), (MAIL, 1, []), (NEWS, 1, [])) as asked:
        desk.may_end.release(2)
        assert len(Counter(key for one in asked for key in keys(one))) == 4
    assert [call[:2] for call in desk.calls] == [(MAIL, 1), (NEWS, 2), (MAIL, 1)]


def test_the_last_get_nothing_where_there_is_less_than_all_want() -> None:
    desk = Desk(3)
    with behind_a_call(desk, (MAIL, 2, []), (MAIL, 2, [])) as asked:
        desk.may_end.release()
        assert [len(keys(one)) for one in asked] == [1, 2, 0]


def test_what_is_only_to_be_settled_comes_on_top() -> None:
    desk = Desk(3)
    desk.sentenced = 2
    with behind_a_call(desk, (None, 0, [report_of(9)]), (MAIL, 1, []), (MAIL, 1, [])) as asked:
        desk.may_end.release()
        assert [len(keys(one)) for one in asked] == [3, 0, 3, 1]


def test_where_a_call_fails_all_of_it_hear_so_and_the_next_goes_on() -> None:
    desk = Desk(10)
    desk.errors[2] = StoreUnavailable("it is away")
    with behind_a_call(desk, (MAIL, 1, []), (MAIL, 1, []), (NEWS, 1, [])) as asked:
        desk.may_end.release(2)
        for one in asked[1:3]:
            with pytest.raises(StoreUnavailable, match="it is away"):
                one.result(PATIENCE_S)
        assert len(keys(asked[3])) == 1


def test_who_is_interrupted_leaves_the_others_to_another_call() -> None:
    desk = Desk(10)
    desk.errors[2] = KeyboardInterrupt()
    with behind_a_call(desk, (MAIL, 1, []), (MAIL, 1, [report_of(9)]), (MAIL, 1, [])) as asked:
        desk.may_end.release(2)
        with pytest.raises(KeyboardInterrupt):
            asked[1].result(PATIENCE_S)
        assert [len(keys(one)) for one in asked[2:]] == [1, 1]
    assert desk.calls[2] == (MAIL, 2, ["r9"])


# On each store.


def test_threads_by_hand_get_each_message_once(shop: Detent) -> None:
    @shop.task(name="noop", queue="mail")
    def noop(number: int) -> None: ...

    noop.push_many([(number,) for number in range(120)])
    queue, seen = shop.queue("mail"), list[Any]()

    def work(uses_done: bool) -> None:
        done = queue.claim(1)
        while done:
            seen.extend(one.args[0] for one in done)
            if not uses_done:
                done[0].ack()
            done = queue.claim(1, done=done if uses_done else ())
        assert not any(one.is_lost for one in done)

    with ThreadPoolExecutor(8) as threads:
        for one in [threads.submit(work, place % 2 == 0) for place in range(8)]:
            one.result(PATIENCE_S * 3)
    assert sorted(seen) == list(range(120))
    assert not any(queue.size())


def test_a_fork_in_the_middle_of_a_call_can_ask_as_well(shop: Detent) -> None:
    @shop.task(name="noop", queue="mail")
    def noop() -> None: ...

    noop.push_many([()] * 2)
    shop.queue("mail").claim(1)
    asks = shop.claims._asks
    asks._is_calling = True  # by a thread that the fork does not have
    pid = os.fork()
    if not pid:
        signal.alarm(int(PATIENCE_S))
        os._exit(0 if shop.queue("mail").claim(1) else 1)
    asks._is_calling = False
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
