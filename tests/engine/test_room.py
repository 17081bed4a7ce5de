"""Room that several workers share: how much of it each claim may take."""

from __future__ import annotations

from stepwell.engine.room import Room
from stepwell.kernel.changes import ClaimedRun, ClaimRuns


class Sharer:
    """A worker that claims when it is told to."""

    def __init__(self, room: Room, name: str) -> None:
        self.room, self.name = room, name
        self.active, self.behind = 0, False
        self.called = 0
        room.enter(self)

    def soon(self) -> None:
        self.called += 1

    def asks(self) -> ClaimRuns:
        ask = ClaimRuns(self.name, f"w-{self.name}", [], 0)
        self.room.ask(self, ask)
        return ask

    def takes(self, number: int) -> None:
        run = ClaimedRun("r", "d", 1, "p", 1, 1, "null", 0, None, None, None)
        self.active += number
        self.room.answered(self)
        self.room.took(self, [run] * number)


def test_who_claims_alone_may_take_all_that_is_free() -> None:
    room = Room(10)
    one, other = Sharer(room, "one"), Sharer(room, "other")
    other.active = 3
    assert one.asks().limit == 7


def test_claims_that_are_gathered_together_divide_what_is_free() -> None:
    room = Room(10)
    asks = [Sharer(room, name).asks() for name in ("a", "b", "c")]
    assert [ask.limit for ask in asks] == [4, 3, 3]


def test_what_a_claim_under_way_may_take_is_not_given_twice() -> None:
    room = Room(10)
    one, other = Sharer(room, "one"), Sharer(room, "other")
    under_way = one.asks()
    under_way.dated = True
    later = other.asks()
    assert (under_way.limit, later.limit) == (10, 0)
    one.takes(4)
    room.made(but=one)
    assert later.limit == 6


def test_the_last_place_is_for_whoever_has_waited_longest() -> None:
    room = Room(1)
    sharers = [Sharer(room, name) for name in ("a", "b", "c")]
    served = []
    for _ in range(6):
        asks = [sharer.asks() for sharer in sharers]
        (place,) = [place for place, ask in enumerate(asks) if ask.limit]
        served.append(sharers[place].name)
        sharers[place].takes(1)
        sharers[place].active = 0
    assert served == ["a", "b", "c", "a", "b", "c"]


def test_those_who_are_behind_hear_of_room_and_others_do_not() -> None:
    room = Room(2)
    one, other = Sharer(room, "one"), Sharer(room, "other")
    other.behind = True
    room.made()
    room.made(but=other)
    assert (one.called, other.called) == (0, 1)
    room.leave(one)
    assert other.called == 2


def test_more_than_there_is_room_for_leaves_nothing_to_claim() -> None:
    room = Room(2)
    one, other = Sharer(room, "one"), Sharer(room, "other")
    other.active = 3
    assert (room.free, one.asks().limit) == (-1, 0)
