    // One thread for each element of a window, so that no two threads meet in an element. Eight updates a turn:
    // lavapipe ends the loops of a thread after 65,535 turns.
    if (id >= p.n) { return; }
    let outer = id / p.run;
    let inner = id % p.run;
    let base = before(outer) + after(inner);
    let first = p.updates_offset + outer * p.count * p.run + inner;
    var i = 0u;
    for (; i + 8u <= p.count; i += 8u) {
        put(base + offsets(i), updates(first + i * p.run));
        put(base + offsets(i + 1u), updates(first + (i + 1u) * p.run));
        put(base + offsets(i + 2u), updates(first + (i + 2u) * p.run));
        put(base + offsets(i + 3u), updates(first + (i + 3u) * p.run));
        put(base + offsets(i + 4u), updates(first + (i + 4u) * p.run));
        put(base + offsets(i + 5u), updates(first + (i + 5u) * p.run));
        put(base + offsets(i + 6u), updates(first + (i + 6u) * p.run));
        put(base + offsets(i + 7u), updates(first + (i + 7u) * p.run));
    }
    for (; i < p.count; i += 1u) {
        put(base + offsets(i), updates(first + i * p.run));
    }
}
