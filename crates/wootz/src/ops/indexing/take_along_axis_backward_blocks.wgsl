    // One thread for a block of the elements along the axis: it adds up in memory of its own, so
    // that narrow types are rounded once.
    if (id >= p.n || failed()) { return; }
    let inner = id % p.inner;
    let blocks = (p.length + BLOCK - 1u) / BLOCK;
    let outer = id / (p.inner * blocks);
    let start = (id / p.inner) % blocks * BLOCK;
    var sums: array<Wide, BLOCK>;
    for (var j = 0u; j < p.count; j += 1u) {
        let number = (outer * p.count + j) * p.inner + inner;
        // Places before the block wrap around and are behind it.
        let along = place(indices(p.indices_offset + number), p.length).x - start;
        if (along < BLOCK) { sums[along] += dy(p.other_offset + number); }
    }
    for (var i = 0u; i < min(BLOCK, p.length - start); i += 1u) {
        out_set((outer * p.length + start + i) * p.inner + inner, sums[i]);
    }
}
