    if (id >= p.n) { return; }
    let index = indices(p.offset + id);
    if (place(index, p.length).y == 0u) { report(p.site, bits(index)); }
}
