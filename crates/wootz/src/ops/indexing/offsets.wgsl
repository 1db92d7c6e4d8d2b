    if (id >= p.n) { return; }
    let index = indices(p.offset + at(id));
    let found = place(index, p.length);
    if (found.y == 0u) { report(p.site, bits(index)); }
    // The first element stands in for a bad index, so that readers stay inside.
    out_data[id] = SUM select(0u, found.x * p.stride, found.y == 1u);
}
