    // Threads for each part of the updates: those of a part where a window begins that goes on behind it add up what
    // the parts have of it, in their order, and round once.
    if (id >= p.n) { return; }
    let inner = id % p.run;
    let part = id / p.run % p.parts;
    let outer = id / p.run / p.parts;
    let end = (part + 1u) * PART;
    if (end >= p.count) { return; }
    let window = window_of(end - 1u);
    if (window_of(end) != window) { return; }
    if (part > 0u) {
        if (window_of(part * PART - 1u) == window) { return; }
    }
    var sum = bitcast<f32>(offsets_data[sum_at(outer, part, true) + inner]);
    for (var next = part + 1u; next < p.parts; next += 1u) {
        sum += bitcast<f32>(offsets_data[sum_at(outer, next, false) + inner]);
        let behind = (next + 1u) * PART;
        if (behind >= p.count) { break; }
        if (window_of(behind) != window) { break; }
    }
    out_set(before(outer) + after(inner) + window, sum);
}
