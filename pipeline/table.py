"""Where each slot of a ring is, and the moves between: plain bookkeeping, called by the ring under its lock."""

from __future__ import annotations

from collections import Counter, deque

from pipeline.lease import Lease, ProcessLease, ReadLease, WriteLease
from pipeline.slot import Slot, SlotState
from pipeline.stats import RingStatistics, Tally


class SlotTable:
    """FREE → WRITING → READY → PROCESSING → FINISHING → DONE → FREE, by position. Not thread-safe, never waits.

    ``busy`` are the slots that the device has (FINISHING, PENDING), ``to_release`` those whose memory is to be freed,
    ``leases`` counts those that are out, by kind. ``retired``: takes no more frames; ``closed``: gives none either.
    """

    def __init__(self, slots: list[Slot], tally: Tally) -> None:
        self.slots = slots
        self.free = list(slots)
        self.ready: deque[Slot] = deque()
        self.newest: Slot | None = None
        self.busy: list[Slot] = []
        self.to_release: list[Slot] = []
        self.leases: Counter[str] = Counter()
        self.retired = False
        self.closed = False
        self._tally = tally

    def end(self, lease: Lease) -> Slot:
        """Consume a lease: its slot is nobody's until it is put somewhere. Raises LeaseConsumedError."""
        slot = lease.consume()
        self.leases[lease.kind] -= 1
        return slot

    def write(self) -> Slot | None:
        """A free slot → WRITING; first those whose results are to move to other memory, so that the old one goes."""
        if not self.free:
            return None
        index = next((i for i, slot in enumerate(self.free) if slot.spare is not None), -1)
        return self._writing(self.free.pop(index))

    def take_back(self, leave: int) -> Slot | None:
        """The oldest unread frame's slot → WRITING, if more than ``leave`` are unread."""
        return self._writing(self.ready.popleft()) if len(self.ready) > leave else None

    def _writing(self, slot: Slot) -> Slot:
        slot.state = SlotState.WRITING
        slot.frame = None
        self.leases[WriteLease.kind] += 1
        return slot

    def publish(self, slot: Slot) -> None:
        """WRITING → READY."""
        slot.state = SlotState.READY
        self.ready.append(slot)

    def process(self, newest: bool) -> Slot:
        """READY → PROCESSING: the newest frame, older ones dropped as ``stale``, or else the oldest."""
        slot = self.ready.pop() if newest else self.ready.popleft()
        if newest:
            self.drop_ready("stale")
        slot.state = SlotState.PROCESSING
        self.leases[ProcessLease.kind] += 1
        return slot

    def finish(self, slot: Slot) -> None:
        """PROCESSING → FINISHING."""
        slot.state = SlotState.FINISHING
        self.busy.append(slot)

    def show(self, slot: Slot) -> bool:
        """FINISHING → DONE; True if it is now the newest result."""
        slot.state = SlotState.DONE
        if self.closed or self.newest_sequence() > slot.sequence:
            self.settle(slot)
            return False
        slot.holds = 1
        old, self.newest = self.newest, slot
        if old is not None:
            self.let_go(old)
        return True

    def newest_sequence(self) -> int:
        """The number of the newest result; -1 while there is none."""
        return -1 if self.newest is None else self.newest.sequence

    def read(self) -> Slot | None:
        """One more reader of the newest result."""
        if self.newest is not None:
            self.newest.holds += 1
            self.leases[ReadLease.kind] += 1
        return self.newest

    def let_go(self, slot: Slot) -> None:
        """One reader fewer."""
        slot.holds -= 1
        if slot.holds == 0:
            self.settle(slot)

    def settle(self, slot: Slot) -> None:
        """The slot of nobody → PENDING while device work holds it, else FREE, or to be released in a retired ring."""
        if slot.pending:
            slot.state = SlotState.PENDING
            self.busy.append(slot)
            return
        slot.frame = None
        slot.state = SlotState.FREE
        (self.to_release if self.retired else self.free).append(slot)

    def drop_ready(self, reason: str) -> None:
        """Every unread frame → FREE, counted."""
        while self.ready:
            self._tally.add(reason)
            self.settle(self.ready.popleft())

    def recover(self, kind: str, slot: Slot) -> None:
        """What a forgotten lease held → where it belongs."""
        self.leases[kind] -= 1
        if kind == ReadLease.kind:
            self.let_go(slot)
        else:
            self._tally.add("lost")
            self.settle(slot)

    def retire(self) -> None:
        """Free slots are to be released, now and from now on."""
        self.retired = True
        while self.free:
            self.settle(self.free.pop())

    def close(self) -> None:
        """Let the newest result go."""
        self.closed = True
        newest, self.newest = self.newest, None
        if newest is not None:
            self.let_go(newest)

    def unfinished(self) -> bool:
        """True while a published frame is neither a result nor dropped."""
        return bool(self.ready or self.leases[ProcessLease.kind]) or any(
            slot.state is SlotState.FINISHING for slot in self.slots
        )

    def released(self) -> bool:
        """True once all memory is freed."""
        return all(slot.state is SlotState.RELEASED for slot in self.slots)

    def statistics(self, generation: int) -> RingStatistics:
        """Slots by state."""
        count = Counter(slot.state for slot in self.slots)
        return RingStatistics(
            generation=generation,
            slots=len(self.slots),
            free=count[SlotState.FREE],
            writing=count[SlotState.WRITING],
            ready=count[SlotState.READY],
            processing=count[SlotState.PROCESSING],
            finishing=count[SlotState.FINISHING],
            done=count[SlotState.DONE],
            pending=count[SlotState.PENDING],
            released=count[SlotState.RELEASED],
            write_leases=self.leases[WriteLease.kind],
            process_leases=self.leases[ProcessLease.kind],
            read_leases=self.leases[ReadLease.kind],
            nbytes=sum(slot.nbytes for slot in self.slots),
        )
