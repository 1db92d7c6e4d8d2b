    // One thread for each line along the axis, so that the last of several values stays.
    if (id >= p.n || failed()) { return; }
    let outer = id / p.inner;
    let inner = id % p.inner;
    for (var j = p.first; j < p.end; j += 1u) {
        let number = (outer * p.count + j) * p.inner + inner;
        let along = place(indices(p.indices_offset + number), p.length).x;
        out_set((outer * p.length + along) * p.inner + inner, values(p.other_offset + number));
    }
}
