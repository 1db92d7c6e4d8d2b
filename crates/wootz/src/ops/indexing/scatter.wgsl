    // One thread for each element of a window, so that no two threads meet in an element.
    if (id >= p.n) { return; }
    let outer = id / p.run;
    let inner = id % p.run;
    let base = before(outer) + after(inner);
    for (var i = 0u; i < p.count; i += 1u) {
        let update = updates(p.updates_offset + (outer * p.count + i) * p.run + inner);
        put(base + offsets(i), update);
    }
}
