"""Into how many leaves a batch is cut, so that all ranks have as much to do."""

from __future__ import annotations

LEAST_SAMPLES = 4  # per leaf, where there is a choice: smaller ones compute slowly
NEARLY = 0.95  # of the best speed: not worth more leaves
GOOD = 0.9  # of the speed of all ranks: worth no words


def power_of_two(ranks: int) -> int:
    """The next one: every rank has a leaf."""
    return 1 << (ranks - 1).bit_length()


def speed(ranks: int, leaves: int) -> float:
    """How many ranks would be as fast if all had as much to do: the slowest has most leaves."""
    return leaves / -(-leaves // ranks)


def choose_leaves(ranks: int, batch: int = 0) -> int:
    """The fewest leaves with which so many ranks are about as fast as the batch allows.

    A power of two of ranks has a leaf each. Without a batch (0), or for one that cannot be cut,
    it is the next power of two.
    """
    usual = power_of_two(ranks)
    if usual == ranks and batch % ranks == 0:
        return ranks
    possible = [leaves for leaves in range(ranks, batch + 1) if batch % leaves == 0]
    if not possible:
        return usual
    roomy = [leaves for leaves in possible if batch // leaves >= LEAST_SAMPLES] or possible[:1]
    best = max(speed(ranks, leaves) for leaves in roomy)
    return next(leaves for leaves in roomy if speed(ranks, leaves) >= NEARLY * best)


def advice(ranks: int, leaves: int, batch: int = 0) -> str:
    """What to choose where ranks wait for others that have more to do, or where a batch can be
    shared in tiny leaves only; empty where all is well."""
    if leaves < ranks:
        return ""
    better = choose_leaves(ranks, batch)
    even = sorted({max(ranks, batch // ranks * ranks), -(-batch // ranks) * ranks})
    other_batch = f"a batch of {' or '.join(map(str, even))}, which they can share evenly"
    if speed(ranks, leaves) >= GOOD * ranks:
        tiny = leaves == better and batch // leaves < min(LEAST_SAMPLES, batch // ranks)
        text = f"{ranks} ranks can share {batch} samples only in {leaves} leaves, which are slow"
        return f"{text}; choose {other_batch}" if tiny else ""
    ways = []
    if batch and speed(ranks, better) > speed(ranks, leaves):
        ways.append(f"--leaves {better}")
    if batch and speed(ranks, better) < GOOD * ranks:
        ways.append(other_batch)
    text = f"{ranks} ranks with {leaves} leaves are as fast as {speed(ranks, leaves):.3g}"
    return f"{text}; choose {', or '.join(ways)}" if ways else text
