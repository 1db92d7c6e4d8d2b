    // One thread for a block of the elements along the axis: it adds up in memory of its own, so
    // that narrow types are rounded once. Sums of all launches but the last wait for the next one.
    if (id >= p.n || failed()) { return; }
    let inner = id % p.inner;
    let blocks = (p.length + BLOCK - 1u) / BLOCK;
    let outer = id / (p.inner * blocks);
    let start = (id / p.inner) % blocks * BLOCK;
    let first = (outer * p.length + start) * p.inner + inner;
    let elements = min(BLOCK, p.length - start);
    var sums: array<Wide, BLOCK>;
    if (p.first > 0u) {
        for (var i = 0u; i < elements; i += 1u) { sums[i] = waiting(first + i * p.inner); }
    }
    for (var j = p.first; j < p.end; j += 1u) {
        let number = (outer * p.count + j) * p.inner + inner;
        // Places before the block wrap around and are behind it.
        let along = place(indices(p.indices_offset + number), p.length).x - start;
        if (along < BLOCK) { sums[along] += dy(p.other_offset + number); }
    }
    for (var i = 0u; i < elements; i += 1u) {
        let at = first + i * p.inner;
        if (p.end < p.count) { waiting_set(at, sums[i]); } else { out_set(at, sums[i]); }
    }
}
